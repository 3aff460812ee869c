"""Finds the values of parameters in DeepSpeed's files: ZeRO stages 1 to 3, old releases, universal checkpoints."""

import math
import re

import torch

import pickles
from problems import listed, notice, refuse

DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
# Buffers have these, and frozen parameters that are no floats.
BUFFER_DTYPES = {**DTYPES, torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
                 torch.bool: "BOOL", torch.float64: "F64", torch.complex64: "C64", torch.float8_e4m3fn: "F8_E4M3",
                 torch.float8_e5m2: "F8_E5M2"}


def load(path):
    try:
        content = pickles.load(path)
    except pickles.Unreadable as error:
        refuse(error)
    if not isinstance(content, dict) and not torch.is_tensor(content):
        refuse(f"{path}: holds {content!r}, not what DeepSpeed saves")
    return content


class Parameter:
    """A parameter or a buffer: its values by kind ("fp32" and the states), each read when it is used."""

    def __init__(self, shape, trainable=True, dtype="F32", buffer=False):
        self.shape, self.trainable, self.dtype, self.buffer = list(shape), trainable, dtype, buffer
        self.read = {}


def sorted_by_rank(paths):
    return sorted(paths, key=lambda path: int(re.search(r"zero_pp_rank_(\d+)_", path.name).group(1)))


def optimizer_files(folder):
    """Returns the files of optimizer state. Old releases write no underscore before "optim_states"."""
    return sorted_by_rank(folder.glob("*zero_pp_rank_*optim_states.pt"))


def group_states(state):
    """Returns one rank's optimizer states by group, and the step if it is stored next to them."""
    base = state.get("base_optimizer_state", state.get("optimizer_state_dict"))
    if isinstance(base, list):  # elastic_checkpoint: without the padding at the end
        return base, state.get("base_optimizer_state_step")
    groups = base.get("param_groups") or [{}]
    return [base["state"][group] for group in sorted(base["state"])], groups[0].get("step")


def step_of(state):
    groups, beside = group_states(state)
    steps = [group["step"] for group in groups if group.get("step") is not None]
    return next(iter(steps), beside)


def flat_states(states, names):
    """Returns {name: flat tensor} of one group on one rank, from the state of a torch optimizer."""
    missing = [name for name in names if not torch.is_tensor(states.get(name))]
    if missing:
        refuse(f"the optimizer state has no {', '.join(missing)}")
    return {name: states[name].reshape(-1) for name in names}


def read_by_mappings(optim, names, found):
    """Reads parameters by param_slice_mappings, the place of each parameter in each rank's partition."""
    for state in optim:
        groups, _ = group_states(state)
        for group, (flat, mapping) in enumerate(zip(state["single_partition_of_fp32_groups"],
                                                    state["param_slice_mappings"])):
            kinds = {"fp32": flat, **flat_states(groups[group] if groups else {}, names)}
            for name, fragment in mapping.items():
                for kind, tensor in kinds.items():
                    part = tensor.view(-1).narrow(0, fragment.start, fragment.numel)
                    found.setdefault(name, {}).setdefault(kind, []).append(part)


def read_in_order(folder, optim, names, found, group_shapes):
    """Reads parameters without stored places, as old releases write them: if the ranks' partitions of a group are
    concatenated, they hold its parameters in order."""
    ranks = [group_states(state)[0] for state in optim]
    for group, shapes in enumerate(group_shapes):
        flat = {"fp32": torch.cat([state["single_partition_of_fp32_groups"][group].view(-1) for state in optim])}
        for name in names:
            flat[name] = torch.cat([flat_states(groups[group], [name])[name] for groups in ranks])
        wanted = sum(math.prod(shape) for shape in shapes.values())
        for kind, tensor in flat.items():
            if tensor.numel() < wanted:
                refuse(f"{folder}: {kind} of group {group} has {tensor.numel()} elements, its parameters take {wanted}")
        begin = 0
        for name, shape in shapes.items():
            count = math.prod(shape)
            found[name] = {kind: [tensor.narrow(0, begin, count)] for kind, tensor in flat.items()}
            begin += count


def read_stage_1_or_2(folder, optim, names, parameters, group_shapes):
    """Reads partitions of flat groups."""
    shapes = {name: shape for group in group_shapes for name, shape in group.items()}
    found = {}  # name -> kind -> parts in rank order
    if "single_partition_of_fp32_groups" not in optim[0]:
        refuse(f"{folder}: its optimizer state has none of fp32_flat_groups and single_partition_of_fp32_groups, as "
               "releases before 0.3.14 wrote; resume and save it with a later release of DeepSpeed first")
    if "param_slice_mappings" in optim[0]:
        read_by_mappings(optim, names, found)
    else:
        read_in_order(folder, optim, names, found, group_shapes)
    for name, kinds in found.items():
        if name not in shapes:
            refuse(f"{folder}: {name} is in the optimizer, not in the model")
        parameters[name] = Parameter(shapes[name])
        for kind, parts in kinds.items():
            parameters[name].read[kind] = lambda parts=parts: torch.cat(parts)


def flat_partition(state, kind):
    """Returns all groups of one stage 3 rank, one after another."""
    if kind == "fp32":
        return [group.view(-1) for group in state["fp32_flat_groups"]]
    return [flat_states(group, [kind])[kind] for group in group_states(state)[0]]


def read_stage_3(folder, optim, names, parameters, group_shapes):
    """Reads the equal, padded part that each rank has of every parameter, in the order of the shapes."""
    flat = {kind: [torch.cat(flat_partition(state, kind)) for state in optim] for kind in ("fp32", *names)}
    begin = 0
    for name, shape in [pair for shapes in group_shapes for pair in shapes.items()]:
        count = math.prod(shape)
        part = -(-count // len(optim))
        parameters[name] = Parameter(shape)
        for kind, of_ranks in flat.items():
            if begin + part > of_ranks[0].numel():
                refuse(f"{folder}: {name} lies beyond the {of_ranks[0].numel()} elements of {kind}")
            parameters[name].read[kind] = lambda of_ranks=of_ranks, begin=begin, part=part, count=count: torch.cat(
                [flat.narrow(0, begin, part) for flat in of_ranks])[:count]
        begin += part
    for kind, of_ranks in flat.items():
        if any(tensor.numel() != begin for tensor in of_ranks):
            refuse(f"{folder}: {kind} has {of_ranks[0].numel()} elements on a rank, the parameters take {begin}")


def universal_kinds(folder):
    """Returns the kinds of state that parameters have in addition to their values."""
    found = {path.stem for path in (folder / "zero").rglob("*.pt") if path.parent.name != "zero"}
    if "fp32" not in found:
        refuse(f"{folder}/zero: holds no parameters")
    return found - {"fp32", "step"}


def read_universal(folder, names, parameters, other_names):
    """Reads all parameters and returns the step."""
    step = None

    def read(path):
        content = load(path)
        return content["param"] if isinstance(content, dict) else content
    for path in sorted((folder / "zero").rglob("fp32.pt")):
        name = str(path.parent.relative_to(folder / "zero"))
        if name in other_names:
            continue
        parameters[name] = Parameter(read(path).shape)
        for kind in ("fp32", *names):
            parameters[name].read[kind] = lambda file=path.with_name(kind + ".pt"): read(file).reshape(-1)
        if path.with_name("step.pt").exists():
            step = read(path.with_name("step.pt"))
    return step


def values_in(module):
    """Returns the model's values that are present: stage 3 leaves an empty tensor if a parameter is sharded."""
    tensors = {name: tensor for name, tensor in module.items() if torch.is_tensor(tensor)}
    return {name: tensor for name, tensor in tensors.items() if tensor.numel() > 0}


def read_buffers(model, parameters):
    """Reads the buffers that the model saves. Only new releases list them."""
    left_out = []
    tensors = values_in(model.get("module") or {})
    for name in model.get("buffer_names") or []:
        tensor = tensors.get(name)
        if tensor is None:
            continue
        if tensor.dtype not in BUFFER_DTYPES:
            left_out.append(f"{name} ({str(tensor.dtype).removeprefix('torch.')})")
            continue
        buffer = parameters[name] = Parameter(tensor.shape, False, BUFFER_DTYPES[tensor.dtype], buffer=True)
        buffer.read["fp32"] = lambda tensor=tensor: tensor.reshape(-1)
    if left_out:
        notice(f"left out: buffers of types that an engine does not keep, {listed(left_out)}")


def is_tied(tensor, others):
    """Returns whether the tensor is another name of one of the others. Old releases do not list the names of one
    tensor, but its file stores it once."""
    return any(tensor.data_ptr() == other.data_ptr() and tensor.shape == other.shape for other in others)


def frozen_in_module(model, parameters):
    """Returns the module's frozen parameters: its values except trained parameters, their other names and buffers,
    since stage 1 does not list frozen ones."""
    others = {*parameters, *(model.get("shared_params") or {}), *(model.get("buffer_names") or [])}
    tensors = values_in(model.get("module") or {})
    known = [tensor for name, tensor in tensors.items() if name in others]
    for name, tensor in tensors.items():
        if name in others or ("shared_params" not in model and is_tied(tensor, known)):
            continue
        known.append(tensor)
        parameter = parameters[name] = frozen_parameter(name, tensor.shape, tensor.dtype)
        parameter.read["fp32"] = lambda tensor=tensor: tensor.reshape(-1)
        yield name


def frozen_parameter(name, shape, dtype):
    """Returns a frozen parameter; the engine has those that are no floats of 16 or 32 bits as buffers."""
    if dtype not in BUFFER_DTYPES or dtype == torch.float64:
        refuse(f"the frozen parameter {name} is stored as {dtype}")
    return Parameter(shape, trainable=False, dtype=BUFFER_DTYPES[dtype], buffer=dtype not in DTYPES)


def read_frozen(model_files, model, parameters):
    """Returns whether the checkpoint may have been saved without its frozen parameters: then it names none."""
    if model.get("frozen_param_shapes") is None:
        return not list(frozen_in_module(model, parameters))
    fragments = model.get("frozen_param_fragments") or {}
    for name, shape in model["frozen_param_shapes"].items():
        parts = [(file.get("frozen_param_fragments") or {}).get(name) for file in model_files]
        parts = [part for part in parts if part is not None] if len(model_files) > 1 else [fragments[name]]
        frozen = parameters[name] = frozen_parameter(name, shape, parts[0].dtype)
        frozen.read["fp32"] = lambda parts=parts, shape=shape: torch.cat(
            [part.reshape(-1) for part in parts])[:math.prod(shape)]
    return False
