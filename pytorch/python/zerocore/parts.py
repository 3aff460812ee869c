"""The tensors that hold the values of a module's parameters: mostly one each. A parameter of a class that torch can flatten, as
torchao's are, is split into several and has no memory of its own, and codes of bitsandbytes have scales next to them. The
engine has each under the name of its parameter and its own."""

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from . import _native
from .integrations.bitsandbytes import scales_of


def is_split(parameter):
    """Returns whether the parameter is of a class that has its values in other tensors: by its class, never by its values."""
    return is_traceable_wrapper_subclass(parameter)


def parts_of(parameter):
    """Yields (text after the parameter's name, tensor)."""
    if is_split(parameter):
        for name in parameter.__tensor_flatten__()[0]:
            for text, tensor in parts_of(getattr(parameter, name)):
                yield f".{name}{text}", tensor
        return
    yield "", parameter
    for name, scales in scales_of(parameter):
        yield f".{name}", scales


def joined(parameter, value_of):
    """Returns a tensor of the class of a split parameter, with value_of(part) as its parts, or None if one of these is None."""
    names, rest = parameter.__tensor_flatten__()
    parts = {}
    for name in names:
        part = getattr(parameter, name)
        parts[name] = joined(part, value_of) if is_split(part) else value_of(part)
    if any(part is None for part in parts.values()):
        return None
    return type(parameter).__tensor_unflatten__(parts, rest, parameter.size(), parameter.stride())


def named_parts(module, remove_duplicate=True):
    """Returns {name: tensor} of the tensors that hold the parameters of a module, in its order."""
    return {name + text: tensor for name, parameter in module.named_parameters(remove_duplicate=remove_duplicate)
            for text, tensor in parts_of(parameter)}


def refuse_unfit(name, parameter):
    """Raises UsageError for a split parameter that the engine cannot shard."""
    if not is_split(parameter):
        return
    kind = f"{type(parameter).__module__}.{type(parameter).__name__}"
    if kind.startswith("torch."):
        raise _native.UsageError(f"parameter {name} is a {kind}, which is sharded already: give the module with whole tensors")
    if parameter.requires_grad:
        raise _native.UsageError(f"parameter {name} is a {kind} and trained: the engine shards such tensors of other libraries "
                                 "only if they are frozen (requires_grad=False), next to adapters for example")
    for text, tensor in parts_of(parameter):
        if tensor.layout != torch.strided or tensor.is_meta:
            raise _native.UsageError(f"parameter {name} is a {kind} whose part {text[1:]} is on the device {tensor.device} in "
                                     f"the layout {tensor.layout}: the engine shards dense tensors that have values")
