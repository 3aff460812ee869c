#define GPT_KERNELS gpt::avx512
#include "examples/gpt/kernels.inl"
