"""torch_autocast: PyTorch's casts of single operations in forward passes."""

import contextlib
import functools

import torch

from . import _native


def around_forward(settings, device):
    """Returns a function that makes the context of one forward pass. Raises ConfigError for float16, whose gradients
    need a loss scale, which only fp16.enabled has."""
    if not settings.autocasts:
        return contextlib.nullcontext
    dtype = settings.autocast_dtype or torch.get_autocast_dtype(device.type)
    if dtype == torch.float16:
        raise _native.ConfigError("torch_autocast.dtype: float16 needs a loss scale, and fp32 parameters have none here: write "
                                  "bfloat16, or fp16.enabled in place of torch_autocast")
    # Without torch's cache of casts, which would keep a copy of each parameter until the end of the pass at stage 3, and
    # add gradients of parameters with several uses in the lower precision.
    return functools.partial(torch.autocast, device.type, dtype=dtype, cache_enabled=False)
