#define GPT_KERNELS gpt::avx2
#include "examples/gpt/kernels.inl"
