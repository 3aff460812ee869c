"""load_checkpoint() of weights alone, or without the optimizer's states, which then stay the engine's own."""

import torch

from . import _native, checkpoints, module_state
from .codes import to_numbers
from .ranks import text_of_root
from .units import is_in_engine


def load(engine, directory, tag, job, strict=True, module_only=False):
    """Returns (the tag, the state that was saved next to the weights), or (None, None) if there is no checkpoint. Each
    rank reads all weights into host memory. Collective; raises UsageError on all ranks before anything is changed."""
    engine.native.drop_gradients()
    engine.native.finish_save()
    if tag is None:
        tag = checkpoints.tag_to_load(directory, job)
    if tag == "":
        tag = text_of_root(job, lambda: next(iter(_native.list_checkpoints(directory)), ""))
    if not tag:
        return None, None
    weights, state = _read(engine, directory, tag, job, strict)
    for parameter in [*engine._tensors, *engine.others]:
        name = engine.name_of(parameter)
        if not is_in_engine(parameter):
            parameter.detach().copy_(weights.get(name, parameter.detach()))
        elif name in weights:
            engine.native.write(name, to_numbers(parameter, weights[name]))
    with torch.no_grad():
        for name, buffer in engine.module.named_buffers():
            if name in weights:
                buffer.copy_(weights[name])
    module_state.restore(engine, state, tag)
    return tag, {"client_state": state.get("client_state", {})} if module_only else state


def _read(engine, directory, tag, job, strict):
    weights, state, problem = {}, {}, ""
    try:
        weights, state = checkpoints.weights_and_state(directory, tag)
        problem = _problem(engine, weights, strict)
    except (OSError, ValueError, KeyError, _native.Error) as error:
        problem = str(error)
    if job.sum(1.0 if problem else 0.0):
        raise _native.UsageError(f"load_checkpoint: {problem or 'another rank has an error, and says which'}")
    return weights, state


def _problem(engine, weights, strict):
    """Returns what does not fit the model, as text; empty if all does."""
    for parameter in filter(is_in_engine, [*engine._tensors, *engine.others]):
        name = engine.name_of(parameter)
        if name not in weights:
            if strict:
                return f"the checkpoint has no parameter {name}; load_module_strict=False keeps the model's own"
        elif tuple(weights[name].shape) != tuple(parameter.shape):
            return (f"parameter {name} has the shape {tuple(weights[name].shape)} in the checkpoint, and "
                    f"{tuple(parameter.shape)} in the model")
    return ""
