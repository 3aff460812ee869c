"""deepspeed.zero: access to whole parameters between passes."""

import contextlib
import enum

import torch

from . import _native


class ZeroParamStatus(enum.Enum):
    """As a parameter's ds_status, which scripts of DeepSpeed's ask before they gather it."""

    AVAILABLE = 1
    NOT_AVAILABLE = 2
    INFLIGHT = 3


class GatheredParameters(contextlib.AbstractContextManager):
    """Inside, the parameters have their whole values on each rank. With a modifier_rank, what that rank has
    changed is taken over by all. Collective."""

    def __init__(self, params, modifier_rank=None, fwd_module=None, enabled=True):
        one = isinstance(params, torch.Tensor)
        self._params = ([params] if one else list(params)) if enabled else []
        self._modifier_rank = modifier_rank
        self._gathered = []  # (parameter, its whole values, its own tensor, its status)

    def __enter__(self):
        for parameter in self._params:
            if not hasattr(parameter, "_zerocore_engine") and not parameter.is_meta:
                continue  # in no engine, and whole
            engine = _engine_of(parameter)
            values = engine.read(parameter).to(parameter.dtype)
            own = parameter.data
            # The storage, for views of the parameter; the tensor, so that .data stays valid after the block.
            engine.native.lend(engine.name_of(parameter), values)
            parameter.data = values
            self._gathered.append((parameter, values, own, parameter.ds_status))
            engine._lent.add(id(parameter))
            parameter.ds_status = ZeroParamStatus.AVAILABLE
        return self

    def __exit__(self, kind, error, traceback):
        for parameter, values, own, status in self._gathered:
            engine = _engine_of(parameter)
            changed = parameter.data
            parameter.data = own
            engine.native.lend(engine.name_of(parameter), None)
            engine._lent.discard(id(parameter))
            parameter.ds_status = status
            if self._modifier_rank is not None and kind is None:
                values = changed.to(values.dtype).contiguous()
                engine._ranks.broadcast(values, self._modifier_rank)
                engine.write(parameter, values)
        self._gathered = []
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
