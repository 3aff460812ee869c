#define GPT_KERNELS gpt::baseline
#include "examples/gpt/cpu/kernels.inl"
