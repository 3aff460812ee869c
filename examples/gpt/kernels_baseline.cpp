#define GPT_KERNELS gpt::baseline
#include "examples/gpt/kernels.inl"
