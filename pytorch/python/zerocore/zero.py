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
            self._values.append(values)
        return self

    def __exit__(self, kind, error, traceback):
        for parameter, values in zip(self._params, self._values):
            engine = _engine_of(parameter)
            engine.native.lend(engine.name_of(parameter), None)
            if self._modifier_rank is not None and kind is None:
                engine._ranks.broadcast(values, self._modifier_rank)
                engine.write(parameter, values)
        return False


class Init(contextlib.AbstractContextManager):
    """A model of any size is constructed on torch's meta device, and gets its values from load_weights() or a
    checkpoint; without this, each rank holds the whole model while it is constructed."""

    def __init__(self, *args, enabled=True, **kwargs):
        self._device = torch.device("meta") if enabled else contextlib.nullcontext()

    def __enter__(self):
        self._device.__enter__()
        return self

    def __exit__(self, *error):
        return self._device.__exit__(*error)


def _engine_of(parameter):
    engine = getattr(parameter, "_zerocore_engine", None)
    if engine is None:
        raise _native.UsageError("this parameter is in no engine: call zerocore.initialize() with its model first")
    return engine
