"""deepspeed.zero: access to whole parameters between passes."""

import contextlib

import torch

from . import _native


class GatheredParameters(contextlib.AbstractContextManager):
    """Inside, the parameters have their whole values on each rank. With a modifier_rank, what that rank has
    changed is taken over by all. Collective."""

    def __init__(self, params, modifier_rank=None, fwd_module=None, enabled=True):
        one = isinstance(params, torch.Tensor)
        self._params = ([params] if one else list(params)) if enabled else []
        self._modifier_rank = modifier_rank
        self._values = []

    def __enter__(self):
        for parameter in self._params:
            engine = _engine_of(parameter)
            values = engine.read(parameter).to(parameter.dtype)
            engine.native.lend(engine.name_of(parameter), values)
            engine._lent.add(id(parameter))
            self._values.append(values)
        return self

    def __exit__(self, kind, error, traceback):
        for parameter, values in zip(self._params, self._values):
            engine = _engine_of(parameter)
            engine.native.lend(engine.name_of(parameter), None)
            engine._lent.discard(id(parameter))
            if self._modifier_rank is not None and kind is None:
                engine._ranks.broadcast(values, self._modifier_rank)
                engine.write(parameter, values)
        return False


class Init(contextlib.AbstractContextManager):
    """A model that is constructed inside never has more than one parameter in memory. Its weights come from
    engine.load_weights() or a checkpoint: the values of its constructor are dropped. Buffers keep theirs."""

    def __init__(self, *args, enabled=True, **kwargs):
        self._enabled = enabled

    def __enter__(self):
        if self._enabled:
            self._register = torch.nn.Module.register_parameter
            torch.nn.Module.register_parameter = _register_on_meta(self._register)
        return self

    def __exit__(self, *error):
        if self._enabled:
            torch.nn.Module.register_parameter = self._register
        return False


def _register_on_meta(register):
    def on_meta(module, name, parameter):
        register(module, name, parameter)
        if parameter is not None and not parameter.is_meta:
            module._parameters[name] = torch.nn.Parameter(parameter.to("meta"), parameter.requires_grad)
    return on_meta


def leave_meta(model):
    """Parameters on the meta device become ones without memory, which the engine fills."""
    replaced = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is None or not parameter.is_meta:
                continue
            if id(parameter) not in replaced:
                empty = _native.without_memory(list(parameter.shape), parameter.dtype)
                replaced[id(parameter)] = (parameter, torch.nn.Parameter(empty, parameter.requires_grad))
            module._parameters[name] = replaced[id(parameter)][1]


def _engine_of(parameter):
    reference = getattr(parameter, "_zerocore_engine", None)
    engine = reference() if reference is not None else None
    if engine is None:
        raise _native.UsageError("this parameter is in no engine: call zerocore.initialize() with its model first")
    return engine
