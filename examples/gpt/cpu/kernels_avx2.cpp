#define GPT_KERNELS gpt::avx2
#include "examples/gpt/cpu/kernels.inl"
