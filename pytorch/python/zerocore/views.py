"""Views of parameters outside of torch, through which a write would pass unseen."""

import functools

import torch

from . import _native


def guard():
    """Arrays of numpy over the memory of an engine are read-only from here on."""
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
