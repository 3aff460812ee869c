// doctest's CHECK replaces torch's. pytorch_test is compiled at once, so one file decides which of
// both headers comes first.
#pragma once

#include <torch/torch.h>

#undef CHECK
#include <doctest/doctest.h>
