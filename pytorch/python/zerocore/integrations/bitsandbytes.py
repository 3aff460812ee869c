"""bitsandbytes' 4-bit weights: the codes are a parameter, and their scales a tensor in its `quant_state`, which the engine
shards with them under the name that bitsandbytes' own state_dict() has. Tables of codes, and the scales of 8-bit weights
(one for each row), are small and stay whole."""

import torch


def scales_of(parameter):
    """Yields (name after the parameter's, tensor)."""
    scales = getattr(getattr(parameter, "quant_state", None), "absmax", None)
    if isinstance(scales, torch.Tensor) and parameter.dtype.itemsize == 1 and scales.numel() > 1:
        yield "absmax", scales
