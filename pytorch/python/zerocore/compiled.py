"""torch.compile within one unit. Compiled kernels read parameters without torch's operations, which would open the
unit."""

import dataclasses
import functools
import sys

import torch
from torch import nn

from . import _native
from .parts import named_parts
from .units import is_in_engine


def refuse_compiled(name):
    """Called first in forward() of every module around units: raises UsageError if that module is compiled or exported."""
    if torch.compiler.is_compiling():
        _refuse(name)


@torch._disable_dynamo  # unlike torch.compiler.disable, imports the compiler at its first call
def _refuse(name):
    raise _native.UsageError(
        f"{name} was compiled as a whole, and its parameters are gathered and freed unit by unit: compile the units, "
        "such as `for block in model.blocks: block.compile()`. For torch.export and ONNX give a plain copy: "
        "copy.deepcopy(engine.module), at stage 3 inside of zero.GatheredParameters(engine.parameters())")


class CompiledModules:
    """The modules that the program compiles, before or after zerocore.initialize()."""

    def __init__(self, module, unit_of):
        self._modules = list(module.modules())
        self._names = dict(module.named_modules())
        self._unit_of = unit_of  # id of a parameter -> its unit and the units around it, innermost first

    def open_before_calls(self):
        """Wraps the modules that were compiled since the last call, so that calling one opens its unit first."""
        for module in self._modules:
            place = "_compiled_call_impl"
            if "torch._dynamo" in sys.modules and isinstance(module, torch._dynamo.OptimizedModule):
                place = "forward"
            call = module.__dict__.get(place)
            if call is not None and not hasattr(call, "opens_unit"):
                module.__dict__[place] = _opening(call, self._innermost(module))

    def compile_units(self, unit_names, options):
        """Compiles each unit without units inside of it, as module.compile(**options) does. Without units but the model,
        its children are compiled."""
        names = [name for name in unit_names if name in self._names and name]
        chosen = [self._names[name] for name in names if not any(other.startswith(name + ".") for other in names)]
        for module in chosen or list(self._modules[0].children()):
            module.compile(**options)

    def _innermost(self, module):
        """Returns a parameter of the unit that contains the module."""
        parameters = list(filter(is_in_engine, named_parts(module).values()))
        if not parameters:
            return None
        innermost = max(parameters, key=lambda parameter: len(self._unit_of[id(parameter)]))
        around = self._unit_of[id(innermost)]
        if any(self._unit_of[id(parameter)][0] not in around for parameter in parameters):
            _refuse(type(module).__name__)
        return innermost


def _opening(call, parameter):
    @functools.wraps(call)
    def opened(*args, **kwargs):
        if parameter is None or torch.compiler.is_compiling():
            return call(*args, **kwargs)
        _use(parameter)
        result = call(*args, **kwargs)
        for tensor in _tensors_of(result):
            if tensor.requires_grad:
                tensor.register_hook(lambda _: _use(parameter))
        return result

    opened.opens_unit = True
    return opened


def _use(parameter):
    with torch.no_grad():
        parameter.view_as(parameter)


def _tensors_of(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for element in value:
            yield from _tensors_of(element)
    elif isinstance(value, dict):
        yield from _tensors_of(list(value.values()))
    elif dataclasses.is_dataclass(value) and not isinstance(value, nn.Module):
        yield from _tensors_of([getattr(value, field.name) for field in dataclasses.fields(value)])
