"""Streams of whole weights out of an engine and into one, with a limit on the memory that they take."""

import fnmatch
import json

import torch

from . import _native
from .codes import is_code, to_numbers
from .integrations import peft
from .parts import is_split, joined, named_parts
from .ranks import bytes_from
from .units import is_in_engine


def receives(engine, rank):
    """Returns whether this rank gets the values that `rank` gets; None: every rank."""
    return rank is None or rank == engine._ranks.rank


def whole_values(engine, parameter, rank=None):
    """Returns a parameter's values, in its dtype and on its device, on `rank` or by default on every rank, and else None.
    Collective."""
    if is_split(parameter):
        return joined(parameter, lambda part: whole_values(engine, part, rank))
    whole = None
    if not is_in_engine(parameter) or parameter.numel() == 0:
        return parameter.detach().clone() if receives(engine, rank) else None
    if receives(engine, rank):
        whole = torch.empty(parameter.shape, dtype=parameter.dtype, device=engine.device)
    engine.native.gather(engine.name_of(parameter), whole, -1 if rank is None else rank)
    return whole


class WeightStream:
    """Iterates over (name, tensor): what engine.stream_weights() returns. close(), the end of its last reference and any
    other call of the engine end it early; the rank then still takes part in the rest, so that no other rank waits in vain."""

    def __init__(self, engine, budget, dtype, merge_adapters, rank):
        self._engine, self._rank, self._dtype = engine, rank, dtype
        self._ready, self._ended_by, self._units = [], None, []
        self._all = peft.merged_units(engine.module, engine.name_of) if merge_adapters else [
            (None, {name: tensor}, []) for name, tensor in named_parts(engine.module).items()]
        self._refuse_quantized()
        self._refuse_small(budget)
        self._units = list(self._all)
        engine.begin_stream(self)

    def __iter__(self):
        return self

    @property
    def tensors(self):
        """(name, dtype, shape) of all that the stream will have."""
        return [(name, self._dtype or each.dtype, tuple(each.shape)) for _, named, _ in self._all for name, each in named.items()]

    def __next__(self):
        while not self._ready and self._ended_by is None and self._has_more():
            self._ready = self._gather()
        if self._ended_by is not None:
            raise _native.UsageError(f"a stream of weights was ended by engine.{self._ended_by}() before its last parameter: "
                                     "take all of it first")
        if self._ready:
            return self._ready.pop(0)
        self._engine.end_stream(self)
        raise StopIteration

    def close(self, call="close"):
        """Ends the stream. Takes part in what other ranks still gather. Collective."""
        if self._ended_by is None and self._has_more():
            self._ready = []
            while self._has_more() and not self._engine.has_failed():
                self._gather()
            self._ended_by = call
        self._engine.end_stream(self)

    def __del__(self):
        if self._ended_by is None and self._has_more() and self._engine.native is not None:
            self.close()

    def _has_more(self):
        return bool(self._units)

    def _gather(self):
        """Returns (name, tensor) of the next parameters. Collective."""
        layer, named, others = self._units.pop(0)
        with self._engine._guarded("stream_weights", settles=True):
            values = {parameter: whole_values(self._engine, parameter, self._rank)
                      for parameter in dict.fromkeys([*named.values(), *others])}
            if not receives(self._engine, self._rank):
                return []
            if layer is not None:
                peft.merge(layer, values)
            return [(name, values[parameter].to(self._dtype or parameter.dtype)) for name, parameter in named.items()]

    def _bytes(self, parameter):
        """The bytes of a parameter in the dtype of the stream."""
        return parameter.numel() * (self._dtype or parameter.dtype).itemsize

    def _refuse_quantized(self):
        for layer, named, _ in self._all:
            for name, parameter in named.items():
                is_number = is_in_engine(parameter) and not is_code(parameter) and not is_split(parameter)
                if not is_number and (layer is not None or self._dtype is not None):
                    kind = type(parameter).__name__ if is_split(parameter) else parameter.dtype
                    raise _native.UsageError(f"engine.stream_weights: parameter {name} holds bytes ({kind}), which "
                                             "neither another dtype nor merge_adapters=True can change")

    def _refuse_small(self, budget):
        """The caller may still hold the last tensor while the next one is gathered."""
        held, least = 0, (0, 0, "")
        for layer, named, others in self._all:
            own = sum(each.nbytes for each in dict.fromkeys([*named.values(), *others]))
            converts = any(self._dtype not in (None, each.dtype) for each in named.values())
            own += sum(map(self._bytes, named.values())) if converts else 0
            own += peft.bytes_to_merge(named) if layer is not None else 0
            least = max(least, (held + own, held, max(named, key=lambda name: named[name].numel())))
            held = max(map(self._bytes, named.values()))
        if least[0] > budget:
            raise _native.UsageError(
                f"engine.stream_weights: the budget is {budget} bytes, and parameter {least[2]} needs {least[0]}, {least[1]} of "
                "them for the tensor before it, which the caller may still hold: give that much")


class ChangeStream(WeightStream):
    """Iterates over (name, shape, flat indices, values): what engine.stream_changes() returns. `head`: {"sequence", "since",
    "digest"}, to be sent before; "since" is None if all weights follow, whose indices are None and whose values have the shape.
    Ends early like a WeightStream."""

    def __init__(self, engine, since, budget, rank, sequence):
        self._changes = None
        self._codes = {name: tensor.dtype for name, tensor in named_parts(engine.module).items() if is_code(tensor)}
        super().__init__(engine, budget, None, False, rank)
        changes = engine.native.changes(since, budget, -1 if rank is None else rank)
        self.head = {"sequence": sequence, "since": changes.since, "digest": changes.digest}
        if changes.since is not None:
            self._changes, self._units = changes, []

    def _has_more(self):
        return bool(self._units) or self._changes is not None

    def _gather(self):
        if self._changes is None:
            return [(name, tuple(tensor.shape), None, tensor) for name, tensor in super()._gather()]
        with self._engine._guarded("stream_weights", settles=True):
            found = self._changes.next()
        if found is None:
            self._changes = None
        return [(name, tuple(shape), numbers, values.view(self._codes.get(name, values.dtype)))
                for name, shape, numbers, values in found or ()]


def load(engine, stream, allow_missing, source):
    """engine.load_stream(), between the checks of the guard. Returns the names that were missing."""
    parameters = named_parts(engine.module, remove_duplicate=False)
    missing = {engine.name_of(each) for each in parameters.values()}
    job = engine._ranks
    own = iter(stream if stream is not None else ())
    given = source is None or job.rank == source
    while True:
        name, tensor, problem = _next_of(own, parameters) if given else ("", None, "")
        said = json.dumps([name, problem])
        agreed = bytes_from(job, said.encode() if job.rank == (source or 0) else b"", source or 0).decode()
        if job.sum(float(given and said != agreed)):
            raise _native.DisagreementError(f"engine.load_stream: the ranks have different streams; this one has {name!r} next, "
                                            f"or an error: {problem or 'none'}")
        name, problem = json.loads(agreed)
        if problem:
            raise _native.UsageError(f"engine.load_stream: {problem}")
        if not name:
            break
        parameter = parameters[name]
        if source is not None:
            tensor = tensor.to(parameter.dtype).contiguous() if given else torch.empty(parameter.shape, dtype=parameter.dtype)
            job.broadcast(tensor, source)
        if is_in_engine(parameter):
            engine.native.write(engine.name_of(parameter), to_numbers(parameter, tensor))
        else:
            parameter.data.copy_(tensor)
        missing.discard(engine.name_of(parameter))
        del tensor
    patterns = allow_missing.split(",") if isinstance(allow_missing, str) else allow_missing
    lacking = [name for name in missing if not any(fnmatch.fnmatchcase(name, each.strip()) for each in patterns)]
    if lacking:
        raise _native.UsageError(f"engine.load_stream: the stream lacked {len(lacking)} parameters, {', '.join(sorted(lacking)[:3])} "
                                 "among them, which keep their values: allow_missing covers names and patterns that may be missing")
    return sorted(missing)


def _next_of(stream, parameters):
    """Returns (name, tensor, problem): "" and None at the end."""
    try:
        name, tensor = next(stream, ("", None))
    except Exception as error:
        return "", None, f"the stream raised {type(error).__name__}: {error}"
    return name, tensor, _problem_of(name, tensor, parameters) if name else ""


def _problem_of(name, tensor, parameters):
    """Returns what does not fit the model, as text; empty if all does."""
    if name not in parameters:
        return f"the model has no parameter {name!r}; it has {', '.join(list(parameters)[:3])}, ..."
    parameter = parameters[name]
    if tuple(tensor.shape) != tuple(parameter.shape):
        return f"{name} has the shape {tuple(tensor.shape)} in the stream, and {tuple(parameter.shape)} in the model"
    if not (is_in_engine(parameter) and torch.promote_types(tensor.dtype, parameter.dtype) == parameter.dtype
            or tensor.dtype == parameter.dtype):
        return (f"{name} is {tensor.dtype} in the stream, and {parameter.dtype} in the model, which would change its values: "
                "convert the tensor first")
    return ""
