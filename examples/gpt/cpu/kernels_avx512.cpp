#define GPT_KERNELS gpt::avx512
#include "examples/gpt/cpu/kernels.inl"
