"""Frozen parameters of one byte per element (a quantizer's codes, floats of 8 bits): the engine shards their bytes and keeps
them unchanged. The native engine reads and writes each byte as a number."""

import torch

from . import _native


def is_code(parameter):
    """Returns whether the engine keeps bytes of the parameter: by its dtype, never by its values."""
    return not parameter.requires_grad and parameter.dtype.itemsize == 1 and _native.file_dtype(parameter.dtype) is not None


def from_numbers(parameter, numbers):
    """Returns what the native engine has read, in the parameter's dtype if it has codes."""
    return numbers.to(torch.uint8).view(parameter.dtype) if is_code(parameter) else numbers


def to_numbers(parameter, values):
    """The inverse, for what the native engine writes."""
    return values.detach().to(parameter.dtype).contiguous().view(torch.uint8) if is_code(parameter) else values
