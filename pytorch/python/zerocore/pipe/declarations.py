"""The declarations of all stages' parameters for the native engine: each stage has its own, and sends them to the others."""

import collections
import json

import torch

from .. import _native, buffers, module_state
from ..parts import is_split
from ..ranks import bytes_from


def refuse_unfit(model, job):
    """Raises UsageError on all ranks for what stages do not support, of the first stage that has some. Collective."""
    own = next(_problems(model), "").encode()
    for stage in range(model.stage_count):
        problem = bytes_from(job, own if job.data_rank == 0 and job.stage == stage else b"", stage * job.data_size)
        if problem:
            raise _native.UsageError(problem.decode())


def _problems(model):
    for name, _ in model.named_parameters(remove_duplicate=False):
        if name.startswith("loss_fn."):
            yield f"PipelineModule: {name} is a parameter of the loss, which belongs to no layer: make the loss a layer"
    for name, *_ in buffers.persistent(model):
        yield (f"buffer {name} is a part of state_dict(), and the stages of a pipeline keep no such buffers (running statistics of "
               "BatchNorm): use LayerNorm or GroupNorm, or register it with persistent=False")
    for name in module_state.extra_state(model):
        yield f"module {name} has an extra state (get_extra_state()), which the stages of a pipeline do not keep"
    for name, (parameter, _) in model.tensors.items():
        if is_split(parameter) or not parameter.is_floating_point() or parameter.is_meta or _native.is_at_rest(parameter):
            yield (f"parameter {name} is a {type(parameter).__name__} of {parameter.dtype} on {parameter.device}; the stages of a pipeline "
                   "have floating-point parameters with values, constructed outside of zero.Init")


def native_pipeline(model, job, settings, compute_dtype, group_of, matrices):
    """Makes the native engine of a model in stages. Collective; raises UsageError if stages differ in a parameter that they
    share."""
    own = {name: _described(parameter, others, compute_dtype, group_of(parameter), matrices)
           for name, (parameter, others) in model.tensors.items()}
    owned = {name for unit in model.own_units for name in model.units[unit].owns}
    message = json.dumps(own).encode()
    of_stages = [json.loads(bytes_from(job, message if job.data_rank == 0 and job.stage == stage else b"", stage * job.data_size))
                 for stage in range(model.stage_count)]
    whole = {}
    for of_stage in of_stages:
        for name, described in of_stage.items():
            known = whole.setdefault(name, described)
            if known | {"also": []} != described | {"also": []}:
                raise _native.UsageError(f"parameter {name} is in several stages, and differs between them: {known} and {described}")
            known["also"] = list(dict.fromkeys([*known["also"], *described["also"]]))
    units = []
    for number, unit in enumerate(model.units):
        parameters = [_native.StageParameter(_parameter(name, whole[name], []), whole[name]["shape"]) for name in unit.owns]
        units.append(_native.StageUnit(unit.name, model.stage_count > 1 and number in model.first_units, parameters, unit.uses))
    tensors = [_parameter(name, whole[name], [parameter]) for name, (parameter, _) in model.tensors.items()]
    model.parameter_count = sum(torch.Size(whole[name]["shape"]).numel() for name in owned)
    return _native.Pipeline(job, units, tensors, settings)


def _described(parameter, others, compute_dtype, group, matrices):
    if parameter.requires_grad and parameter._post_accumulate_grad_hooks is None:
        parameter._post_accumulate_grad_hooks = collections.OrderedDict()  # torch adds later hooks to this dict
    return {"shape": list(parameter.shape), "dtype": str(compute_dtype).removeprefix("torch."),
            "trainable": parameter.requires_grad, "group": group, "whole": matrices if parameter.requires_grad else None,
            "also": others}


def _parameter(name, described, tensors):
    return _native.Parameter(name=name, tensors=tensors, dtype=getattr(torch, described["dtype"]), converted=False,
                             trainable=described["trainable"], group=described["group"], whole=described["whole"],
                             also_named=described["also"])
