"""deepspeed.utils: values of single parameters, by the parameter. Collective: all ranks call them in the same order."""

import torch

from . import _native
from .gradients import set_gradient, set_state
from .zero import _engine_of


def safe_get_full_fp32_param(parameter):
    return _engine_of(parameter).read(parameter, "master")


def safe_get_full_grad(parameter):
    return _engine_of(parameter).read(parameter, "grad")


def safe_get_full_optimizer_state(parameter, name):
    return _engine_of(parameter).read(parameter, name)


def safe_set_full_fp32_param(parameter, values):
    """The values of rank 0 are those of all ranks, here and below."""
    engine = _engine_of(parameter)
    engine.write(parameter, _of_root(engine, parameter, values))


def safe_set_full_optimizer_state(parameter, values, name):
    """Between steps, and among the micro steps of one."""
    engine = _engine_of(parameter)
    set_state(engine, parameter, name, _of_root(engine, parameter, values))


def safe_set_full_grad(parameter, values):
    """Between backward() and step(): the gradient of this step so far, averaged over ranks and micro steps and without a
    loss scale. Clipping acts on it, and what later micro steps bring is added."""
    engine = _engine_of(parameter)
    set_gradient(engine, parameter, _of_root(engine, parameter, values))


# At stage 3 each rank has a part of the flat parameter in DeepSpeed: equal parts in the order of ranks, the last of which
# are filled up with zeros. The engine's own parts are others, so that these functions cut the whole, and are collective.

def safe_get_local_fp32_param(parameter):
    return _part_of(parameter, safe_get_full_fp32_param(parameter))


def safe_get_local_grad(parameter):
    return _part_of(parameter, safe_get_full_grad(parameter))


def safe_get_local_optimizer_state(parameter, name):
    return _part_of(parameter, safe_get_full_optimizer_state(parameter, name))


def safe_set_local_fp32_param(parameter, values):
    safe_set_full_fp32_param(parameter, _whole_of(parameter, values))


def safe_set_local_grad(parameter, values):
    safe_set_full_grad(parameter, _whole_of(parameter, values))


def safe_set_local_optimizer_state(parameter, values, name):
    safe_set_full_optimizer_state(parameter, _whole_of(parameter, values), name)


def _of_root(engine, parameter, values):
    values = torch.as_tensor(values)
    if values.numel() != parameter.ds_numel:
        raise _native.UsageError(f"parameter {engine.name_of(parameter)} has {parameter.ds_numel} elements, of the shape "
                                 f"{tuple(parameter.ds_shape)}, and what was given has {values.numel()}")
    values = values.detach().to(device="cpu", dtype=torch.float32, copy=True).reshape(parameter.ds_shape).contiguous()
    engine._ranks.broadcast(values)
    return values


def _engine_with_parts(parameter):
    engine = _engine_of(parameter)
    if engine.zero_optimization_stage() != 3:
        raise _native.UsageError(f"parameter {engine.name_of(parameter)} has no local part at stage "
                                 f"{engine.zero_optimization_stage()}, as in DeepSpeed: safe_get_full_* and safe_set_full_* "
                                 "are there at every stage")
    return engine


def _part_of(parameter, whole):
    engine = _engine_with_parts(parameter)
    count = parameter.partition_numel()
    flat = torch.nn.functional.pad(whole.flatten(), (0, count * engine.world_size - whole.numel()))
    return flat[engine.global_rank * count:(engine.global_rank + 1) * count].clone()


def _whole_of(parameter, values):
    engine = _engine_with_parts(parameter)
    count = parameter.partition_numel()
    if values.numel() != count:
        raise _native.UsageError(f"the local part of parameter {engine.name_of(parameter)} has {count} elements on each of "
                                 f"{engine.world_size} ranks, and what was given has {values.numel()}")
    parts = []
    for rank in range(engine.world_size):
        mine = rank == engine.global_rank
        part = (values.detach() if mine else torch.empty(count)).to(device="cpu", dtype=torch.float32, copy=True)
        part = part.flatten().contiguous()
        engine._ranks.broadcast(part, rank)
        parts.append(part)
    return torch.cat(parts)[:parameter.ds_numel]
