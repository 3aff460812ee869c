"""bitsandbytes' 4-bit weights: the codes are a parameter, and their scales a tensor in its `quant_state`, which the engine
shards with them under the name that bitsandbytes' own state_dict() has. Tables of codes, and the scales of 8-bit weights
(one for each row), are small and stay whole."""

import torch


def scales_of(parameter):
    """Yields (name after the parameter's, tensor)."""
    scales = getattr(getattr(parameter, "quant_state", None), "absmax", None)
    if isinstance(scales, torch.Tensor) and parameter.dtype.itemsize == 1 and scales.numel() > 1:
        yield "absmax", scales


def named_tensors(module, remove_duplicate=True):
    """Returns {name: tensor} of all parameters of a module and all of their scales."""
    return dict([*module.named_parameters(remove_duplicate=remove_duplicate), *named_scales(module)])


def named_scales(module):
    """Yields (name, tensor) of all scales of a module."""
    for name, parameter in module.named_parameters():
        for suffix, scales in scales_of(parameter):
            yield f"{name}.{suffix}", scales
