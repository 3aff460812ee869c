"""Reads and writes values of single parameters, as deepspeed.utils does. Collective: all ranks must call these functions
in the same order. They raise UsageError for a parameter that is in no engine. Of a frozen parameter the functions that
read return None, since it has no master weights; its values can be set, and a gradient or a state cannot, with a notice.
A rank's part is DeepSpeed's: equal parts of the flat parameter, padded with zeros."""

import torch

from . import _native
from .gradients import set_gradient, set_state
from .zero import _engine_of


def safe_get_full_fp32_param(parameter):
    """Returns the parameter's master weights, in its shape, as fp32 on its device."""
    return _read(parameter, "master")


def safe_get_full_grad(parameter):
    """Returns the parameter's gradient, in its shape, as fp32: averaged over ranks and micro-batches, without loss
    scale and before clipping. Between backward() and step() it is that so far, later that of the last step."""
    return _read(parameter, "grad")


def safe_get_full_optimizer_state(parameter, name):
    """Returns an optimizer state ("exp_avg", "exp_avg_sq", "momentum_buffer", ...) in the parameter's shape, as
    fp32."""
    return _read(parameter, name)


def safe_set_full_fp32_param(parameter, values):
    """Sets the parameter and its master weights, on all ranks, to the values of rank 0, a tensor of the parameter's
    shape. Call it between steps."""
    engine = _engine_of(parameter)
    engine.write(parameter, _of_root(engine, parameter, values))


def safe_set_full_optimizer_state(parameter, values, name):
    """Sets a state of the optimizer ("exp_avg", "exp_avg_sq", ...), on all ranks, to the values of rank 0. Call it
    between steps, or between the micro-batches of a step."""
    engine = _engine_that_trains(parameter, "safe_set_full_optimizer_state")
    if engine is not None:
        set_state(engine, parameter, name, _of_root(engine, parameter, values))


def safe_set_full_grad(parameter, values):
    """Sets the gradient of this step so far, on all ranks, to the values of rank 0: an average over ranks and
    micro-batches, without a loss scale. The step clips it, and later micro-batches add to it. Call it between
    backward() and step()."""
    engine = _engine_that_trains(parameter, "safe_set_full_grad")
    if engine is not None:
        set_gradient(engine, parameter, _of_root(engine, parameter, values))


def safe_update_full_grad_vectorized(param_list, update_func):
    """Sets the gradient of each trained parameter in the list to `update_func(gradient, parameter)`."""
    for parameter in param_list:
        gradient = safe_get_full_grad(parameter)
        if gradient is not None:
            safe_set_full_grad(parameter, update_func(gradient, parameter))


# DeepSpeed divides the flat parameter at stage 3 into equal parts in the order of ranks, padded with zeros at the end. The
# engine divides parameters differently, so these functions cut the whole values, and are therefore collective.

def safe_get_local_fp32_param(parameter):
    """Returns this rank's part of the master weights, flat, as fp32. Raises UsageError below stage 3."""
    return _part_of(parameter, safe_get_full_fp32_param(parameter))


def safe_get_local_grad(parameter):
    """Returns this rank's part of safe_get_full_grad(), flat. Raises UsageError below stage 3."""
    return _part_of(parameter, safe_get_full_grad(parameter))


def safe_get_local_optimizer_state(parameter, name):
    """Returns this rank's part of a state of the optimizer, flat. Raises UsageError below stage 3."""
    return _part_of(parameter, safe_get_full_optimizer_state(parameter, name))


def safe_set_local_fp32_param(parameter, values):
    """Sets the parameter and its master weights from the parts of all ranks, each flat and of equal size."""
    safe_set_full_fp32_param(parameter, _whole_of(parameter, values))


def safe_set_local_grad(parameter, values):
    """Sets the gradient of this step so far from the parts of all ranks, each flat and of equal size."""
    safe_set_full_grad(parameter, _whole_of(parameter, values))


def safe_set_local_optimizer_state(parameter, values, name):
    """Sets a state of the optimizer from the parts of all ranks, each flat and of equal size."""
    safe_set_full_optimizer_state(parameter, _whole_of(parameter, values), name)


def _read(parameter, what):
    engine = _engine_of(parameter)
    return engine.read(parameter, what) if engine.trains(parameter) else None


_said = set()  # the functions that have said that a parameter is frozen


def _engine_that_trains(parameter, call):
    """Returns the parameter's engine; None, with a notice for each function, if the parameter is frozen in it."""
    engine = _engine_of(parameter)
    if engine.trains(parameter):
        return engine
    if call not in _said and engine.global_rank == 0:
        print(f"zero: {call}: parameter {engine.name_of(parameter)} is frozen, and has no gradient and no states: nothing is "
              "set", flush=True)
    _said.add(call)
    return None


def _of_root(engine, parameter, values):
    values = torch.as_tensor(values)
    if values.numel() != parameter.ds_numel:
        raise _native.UsageError(f"parameter {engine.name_of(parameter)} has {parameter.ds_numel} elements, of the shape "
                                 f"{tuple(parameter.ds_shape)}, and the given values have {values.numel()}")
    values = values.detach().to(device="cpu", dtype=torch.float32, copy=True).reshape(parameter.ds_shape).contiguous()
    engine._ranks.broadcast(values)
    return values


def _engine_with_parts(parameter):
    engine = _engine_of(parameter)
    if engine.zero_optimization_stage() != 3:
        raise _native.UsageError(f"parameter {engine.name_of(parameter)} has no local part at stage "
                                 f"{engine.zero_optimization_stage()}, as in DeepSpeed: safe_get_full_* and safe_set_full_* "
                                 "work at every stage")
    return engine


def _part_of(parameter, whole):
    engine = _engine_with_parts(parameter)
    if whole is None:
        return None
    count = parameter.partition_numel()
    flat = torch.nn.functional.pad(whole.flatten(), (0, count * engine.world_size - whole.numel()))
    return flat[engine.global_rank * count:(engine.global_rank + 1) * count].clone()


def _whole_of(parameter, values):
    engine = _engine_with_parts(parameter)
    count = parameter.partition_numel()
    if values.numel() != count:
        raise _native.UsageError(f"the local part of parameter {engine.name_of(parameter)} has {count} elements on each of "
                                 f"{engine.world_size} ranks, and the given values have {values.numel()}")
    parts = []
    for rank in range(engine.world_size):
        mine = rank == engine.global_rank
        part = (values.detach() if mine else torch.empty(count)).to(device="cpu", dtype=torch.float32, copy=True)
        part = part.flatten().contiguous()
        engine._ranks.broadcast(part, rank)
        parts.append(part)
    return torch.cat(parts)[:parameter.ds_numel]
