"""Changes torch's own calls for parameters that are in an engine, or sharded at rest: the engine cannot notice a write
through a numpy array, and a parameter without memory has a text and the address 0, as in DeepSpeed."""

import functools

import torch

from . import _native


def guard():
    """From now on numpy arrays over an engine's memory are read-only, and repr() and data_ptr() need no memory."""
    replace(torch.Tensor, "numpy", _read_only)
    replace(torch.Tensor, "data_ptr", _address)
    replace(torch.UntypedStorage, "data_ptr", _address)
    replace(torch.UntypedStorage, "is_shared", _is_shared)
    replace(torch.Tensor, "__repr__", _text)


def replace(owner, name, make):
    """Replaces a method by make(method), once."""
    own = getattr(owner, name)
    if not hasattr(own, "is_by_zerocore"):
        ours = functools.wraps(own)(make(own))
        ours.is_by_zerocore = True
        setattr(owner, name, ours)


def _is_at_rest(error):
    return str(error).startswith("ZeroCore: ")


def _read_only(numpy_of):
    def numpy(tensor, *args, **kwargs):
        array = numpy_of(tensor, *args, **kwargs)
        if _native.is_of_engine(tensor):
            array.flags.writeable = False
        return array
    return numpy


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
