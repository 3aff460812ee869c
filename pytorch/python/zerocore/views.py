"""Changes torch's own calls for parameters that are sharded at rest: one without memory has a text and the address 0, as in
DeepSpeed. For zero.Init, and for scripts that were written for DeepSpeed (as_deepspeed/patches.py)."""

import torch

from .wrapping import replace_once


def guard(_module=None):
    """From now on repr() and data_ptr() need no memory."""
    replace_once(torch.Tensor, "data_ptr", _address)
    replace_once(torch.UntypedStorage, "data_ptr", _address)
    replace_once(torch.UntypedStorage, "is_shared", _is_shared)
    replace_once(torch.Tensor, "__repr__", _text)


def _is_at_rest(error):
    return str(error).startswith("ZeroCore: ")


def _address(address_of):
    def data_ptr(owner):
        try:
            return address_of(owner)
        except RuntimeError as error:
            if not _is_at_rest(error):
                raise
            return 0
    return data_ptr


def _is_shared(is_shared_of):
    """torch's own is_shared() of a storage without memory ends the process."""
    return lambda storage: storage.data_ptr() != 0 and is_shared_of(storage)


def _text(text_of):
    def text(tensor, *args, **kwargs):
        try:
            return text_of(tensor, *args, **kwargs)
        except RuntimeError as error:
            if not _is_at_rest(error):
                raise
            return f"tensor(..., size={tuple(tensor.shape)}, dtype={tensor.dtype}, sharded at rest)"
    return text
