"""Saves and sets the rest of what state_dict() of a model has, in addition to parameters and the buffers of rank 0: the
extra state of modules (get_extra_state()), and what of it and of the buffers differs between ranks."""

import copy
import hashlib

import torch

from . import _native, saved_state, streams
from .ranks import bytes_from

_MOST_BYTES = 1 << 30  # of all ranks together, in the memory of rank 0


def extra_state(model):
    """Returns {name of a module: its extra state} of the modules that have some."""
    return {path: module.get_extra_state() for path, module in model.named_modules() if _has_extra(module)}


def _has_extra(module):
    return type(module).get_extra_state is not torch.nn.Module.get_extra_state


def _set_extra(model, values):
    for path, value in values.items():
        model.get_submodule(path).set_extra_state(value)


def start_alike(model, job):
    """Sets the extra state of all ranks to rank 0's. Raises UsageError for one that checkpoints cannot store.
    Collective."""
    values = extra_state(model)
    if not values:
        return
    try:
        own = saved_state.to_bytes({path: _encoded(path, value) for path, value in values.items()}, "")
    except saved_state.Unsavable as error:
        raise _native.UsageError(f"zerocore.initialize: {error}") from None
    of_root = bytes_from(job, own if job.rank == 0 else b"")
    if of_root != own:
        _set_extra(model, {path: saved_state.from_bytes(data)["value"]
                           for path, data in saved_state.from_bytes(of_root).items()})


def _encoded(path, value):
    return saved_state.to_bytes({"value": value}, f"the extra state of module {path or '(the model itself)'}, its")


def collect(engine):
    """Returns what checkpoints contain of it, as a part of the engine's state. Collective; raises UsageError on all
    ranks if one has an extra state that cannot be stored."""
    job, buffers = engine._ranks, engine._buffers_of_model
    problem, own = "", {}
    try:
        own = {f"extra:{path}": _encoded(path, value) for path, value in extra_state(engine.module).items()}
    except saved_state.Unsavable as error:
        problem = str(error)
    if job.sum(1.0 if problem else 0.0):
        raise _native.UsageError(f"save_checkpoint: {problem or 'another rank has an error, and says which'}")
    collected = {"extra_state": own, "dtypes": buffers.dtypes_without_name(), "bytes": buffers.of_parameters()}
    own = own | {f"buffer:{name}": saved_state.to_bytes({"value": buffer}, name) for name, buffer in buffers.named()}
    if job.size > 1 and own:
        collected["of_ranks"] = _differing(own, job)
    return collected


def _differing(own, job):
    """Returns, on rank 0, for each rank the state that differs from rank 0's; None if nothing differs, or if it is
    too large. Collective."""
    digests = {name: hashlib.blake2b(data, digest_size=16).digest() for name, data in own.items()}
    of_root = bytes_from(job, b"".join(digests.values()))
    mine = {name: own[name] for place, (name, digest) in enumerate(digests.items())
            if of_root[16 * place:16 * place + 16] != digest}
    total = job.sum(float(sum(map(len, mine.values()))))
    if not total:
        return None
    if total > _MOST_BYTES:
        if job.rank == 0:
            print(f"zero: buffers and extra states differ between ranks, in {int(total)} bytes: the checkpoint has those of "
                  f"rank 0, since more than {_MOST_BYTES} bytes are not gathered", flush=True)
        return None
    data = saved_state.to_bytes(mine, "")
    gathered = [bytes_from(job, data if job.rank == rank else b"", rank) for rank in range(job.size)]
    return gathered if job.rank == 0 else None


def restore(engine, state, tag):
    """Sets the extra state and, on as many ranks as the checkpoint was saved on, what differed there between ranks.
    `state`: what collect() returned, loaded; rank 0's buffers are loaded already."""
    job, own = engine._ranks, dict(state.get("extra_state", {}))
    of_ranks = [saved_state.from_bytes(data) for data in state.get("of_ranks") or ()]
    if len(of_ranks) == job.size:
        own.update(of_ranks[job.rank])
    elif of_ranks and job.rank == 0:
        names = sorted({name.partition(":")[2] for each in of_ranks for name in each})
        print(f"zero: {tag} was saved on {len(of_ranks)} ranks, between which {len(names)} buffers or extra states "
              f"differed, {', '.join(names[:3])} among them; {job.size} ranks continue, all with rank 0's", flush=True)
    places = {f"extra:{path}": module.set_extra_state for path, module in engine.module.named_modules() if _has_extra(module)}
    places.update({f"buffer:{name}": buffer.copy_ for name, buffer in engine._buffers_of_model.named()})
    with torch.no_grad():
        for name, data in own.items():
            if name in places:
                places[name](saved_state.from_bytes(data)["value"])
    differing = [name for name in {*places, *own} if (name in places) != (name in own) and name.startswith("extra:")]
    if differing and job.rank == 0:
        names = ", ".join(sorted(name.partition(":")[2] for name in differing)[:3])
        print(f"zero: {tag} or the model has no extra state (get_extra_state()) of {len(differing)} modules, {names} among "
              "them: what is there stays as it is", flush=True)


def check_export(engine):
    """Raises UsageError for buffers that safetensors cannot hold; rank 0 prints a notice on extra states."""
    unnamed = engine._buffers_of_model.dtypes_without_name()
    if unnamed:
        name, dtype = next(iter(unnamed.items()))
        raise _native.UsageError(f"engine.export_model: buffer {name} is {dtype}, which safetensors files cannot hold: "
                                 "save_16bit_model() and save_checkpoint() store it")
    extra = list(extra_state(engine.module))
    if extra and engine._ranks.rank == 0:
        print(f"zero: export_model writes tensors only, not the extra state of {len(extra)} modules, "
              f"{', '.join(extra[:3])} among them: save_16bit_model() and save_checkpoint() store it", flush=True)


def gathered(engine, rank, exclude_frozen_parameters):
    """Returns what state_dict() of an engine's module has, with whole values of parameters in the compute dtype and
    tied ones under all of their names, on `rank`, or on every rank if that is None; None on the others. Collective."""
    state, read, keeps = {}, {}, streams.receives(engine, rank)
    for name, value in engine.module.state_dict(keep_vars=True).items():
        if engine._has(value):
            if exclude_frozen_parameters and not value.requires_grad:
                continue
            if id(value) not in read:
                with engine._guarded("module_state_dict", settles=True):
                    read[id(value)] = streams.whole_values(engine, value, rank)
            state[name] = read[id(value)]
        elif keeps and isinstance(value, torch.Tensor):
            if id(value) not in read:
                read[id(value)] = copy.deepcopy(value.detach())  # clone() lacks some dtypes
            state[name] = read[id(value)]
        elif keeps:
            state[name] = copy.deepcopy(value)
    return state if keeps else None
