"""Guards views of parameters outside torch, because the engine cannot notice a write through them."""

import functools

import torch

from . import _native


def guard():
    """Makes numpy arrays over an engine's memory read-only from now on."""
    if hasattr(torch.Tensor.numpy, "guards_parameters"):
        return
    numpy_of = torch.Tensor.numpy

    @functools.wraps(numpy_of)
    def numpy(tensor, *args, **kwargs):
        array = numpy_of(tensor, *args, **kwargs)
        if _native.is_of_engine(tensor):
            array.flags.writeable = False
        return array

    numpy.guards_parameters = True
    torch.Tensor.numpy = numpy
