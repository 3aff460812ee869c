#!/usr/bin/env python3
"""Turns a DeepSpeed checkpoint of ZeRO stage 1, 2 or 3, or a universal one, into a checkpoint of ZeroCore.

    pip install torch numpy xxhash
    python3 examples/deepspeed_checkpoint/convert.py DEEPSPEED_DIR OUTPUT [--tag TAG] [--rename OLD=NEW ...]

DEEPSPEED_DIR is what was given to save_checkpoint(), or the folder of one tag in it. Parameters keep their names;
--rename changes how they begin ("--rename module.=" drops a prefix). The result holds master weights, moments, step
and samples, and loads at any stage and number of ranks: --checkpoint OUTPUT in train_gpt, Engine::resume(OUTPUT).

DeepSpeed itself is not needed. Its files are pickles: they are read with weights_only=True, which runs no code from
them, and with stand-ins for the four classes of DeepSpeed that its own files name. Tensors stay in their files until
they are written, one after another.
"""

import argparse
import json
import pathlib
import re
import struct
import sys

import torch
import xxhash

CHUNK = 4 << 20
STATES = {"Adam": ("exp_avg", "exp_avg_sq"), "AdamW": ("exp_avg", "exp_avg_sq"), "SGD": ("momentum_buffer",)}
DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


class fragment_address:
    """Where a part of a parameter lies in a rank's flat partition: numel, start."""


class ZeroStageEnum(int):
    pass


class LossScaler:
    pass


class DynamicLossScaler:
    pass


ALLOWED = [(fragment_address, "deepspeed.utils.tensor_fragment.fragment_address"),
           (ZeroStageEnum, "deepspeed.runtime.zero.config.ZeroStageEnum"),
           (LossScaler, "deepspeed.runtime.fp16.loss_scaler.LossScaler"),
           (DynamicLossScaler, "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler")]


def refuse(problem):
    sys.exit(f"convert.py: {problem}")


def load(path):
    try:
        with torch.serialization.safe_globals(ALLOWED):
            return torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except Exception as error:  # torch raises many kinds
        refuse(f"{path}: {error}")


def product(shape):
    count = 1
    for extent in shape:
        count *= extent
    return count


class Parameter:
    """Its values by kind ("fp32" and the states), each read when asked for."""

    def __init__(self, shape, trainable=True, dtype="F32"):
        self.shape, self.trainable, self.dtype, self.read = list(shape), trainable, dtype, {}


def sorted_by_rank(paths):
    return sorted(paths, key=lambda path: int(re.search(r"zero_pp_rank_(\d+)_", path.name).group(1)))


def flat_states(states, names):
    """{name: flat tensor} of one group on one rank, from the state of a torch optimizer."""
    missing = [name for name in names if not torch.is_tensor(states.get(name))]
    if missing:
        refuse(f"the optimizer state has no {', '.join(missing)}")
    return {name: states[name] for name in names}


def read_stage_1_or_2(folder, optim, names, parameters, shapes):
    """Partitions of flat groups; param_slice_mappings says where each parameter lies in each rank's."""
    found = {}  # name -> kind -> parts in rank order
    step = None
    for rank, file in enumerate(optim):
        state = file["optimizer_state_dict"]
        if "param_slice_mappings" not in state:
            refuse(f"{folder}: written by an old DeepSpeed, without param_slice_mappings; "
                   "make it universal with DeepSpeed's ds_to_universal first")
        base = state["base_optimizer_state"]
        if not isinstance(base, dict):
            refuse(f"{folder}: elastic_checkpoint is not supported; make it universal with ds_to_universal first")
        for group, (flat, mapping) in enumerate(zip(state["single_partition_of_fp32_groups"],
                                                    state["param_slice_mappings"])):
            of_group = base["state"][group]
            step = of_group.get("step", step)
            kinds = {"fp32": flat, **flat_states(of_group, names)}
            for name, fragment in mapping.items():
                for kind, tensor in kinds.items():
                    part = tensor.view(-1).narrow(0, fragment.start, fragment.numel)
                    found.setdefault(name, {}).setdefault(kind, []).append(part)
    for name, kinds in found.items():
        if name not in shapes:
            refuse(f"{folder}: {name} is in the optimizer, not in the model")
        parameters[name] = Parameter(shapes[name])
        for kind, parts in kinds.items():
            parameters[name].read[kind] = lambda parts=parts: torch.cat(parts)
    return step


def flat_partition(state, kind):
    """All groups of one rank of stage 3, one after another."""
    if kind == "fp32":
        return [group.view(-1) for group in state["fp32_flat_groups"]]
    base = state["optimizer_state_dict"]["state"]
    return [flat_states(base[group], [kind])[kind].view(-1) for group in sorted(base)]


def read_stage_3(folder, optim, names, parameters, shapes):
    """Each rank has an equal, padded part of every parameter, in the order of the shapes."""
    ranks = len(optim)
    states = [file["optimizer_state_dict"] for file in optim]
    flat = {kind: [torch.cat(flat_partition(state, kind)) for state in states] for kind in ("fp32", *names)}
    begin = 0
    for name, shape in shapes.items():
        count = product(shape)
        part = -(-count // ranks)
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
    base = states[0]["optimizer_state_dict"]["state"]
    return next((group["step"] for group in base.values() if "step" in group), None)


def read_universal(folder, names, parameters, shared):
    step = None
    for path in sorted((folder / "zero").rglob("fp32.pt")):
        name = str(path.parent.relative_to(folder / "zero"))
        if name in shared:
            continue

        def read(kind, path=path):
            content = load(path.with_name(kind + ".pt"))
            return content["param"] if isinstance(content, dict) else content
        parameters[name] = Parameter(read("fp32").shape)
        for kind in ("fp32", *names):
            parameters[name].read[kind] = lambda kind=kind, read=read: read(kind).reshape(-1)
        if (path.with_name("step.pt")).exists():
            content = load(path.with_name("step.pt"))
            step = content["param"] if isinstance(content, dict) else content
    if not parameters:
        refuse(f"{folder}/zero: holds no parameters")
    return step


def frozen_at_stage_1(model, parameters):
    """What the module holds beside trained parameters, their other names and buffers: DeepSpeed does not list it."""
    others = {*parameters, *(model.get("shared_params") or {}), *(model.get("buffer_names") or [])}
    for name, tensor in (model.get("module") or {}).items():
        if name in others or not torch.is_tensor(tensor):
            continue
        parameter = parameters[name] = Parameter(tensor.shape, trainable=False, dtype=DTYPES.get(tensor.dtype))
        if parameter.dtype is None:
            refuse(f"the frozen parameter {name} is stored as {tensor.dtype}")
        parameter.read["fp32"] = lambda tensor=tensor: tensor.reshape(-1)


def read_frozen(model_files, model, parameters):
    if model.get("frozen_param_shapes") is None:
        frozen_at_stage_1(model, parameters)
    fragments = model.get("frozen_param_fragments") or {}
    for name, shape in (model.get("frozen_param_shapes") or {}).items():
        parts = [(file.get("frozen_param_fragments") or {}).get(name) for file in model_files]
        parts = [part for part in parts if part is not None] if len(model_files) > 1 else [fragments[name]]
        frozen = parameters[name] = Parameter(shape, trainable=False, dtype=DTYPES.get(parts[0].dtype))
        if frozen.dtype is None:
            refuse(f"the frozen parameter {name} is stored as {parts[0].dtype}")
        frozen.read["fp32"] = lambda parts=parts, shape=shape: torch.cat(
            [part.reshape(-1) for part in parts])[:product(shape)]


class Checkpoint:
    """What DeepSpeed wrote for one tag."""

    def __init__(self, folder):
        self.parameters = {}
        universal = (folder / "zero").is_dir()
        optim_paths = sorted_by_rank(folder.glob("*zero_pp_rank_*_optim_states.pt"))
        model_paths = sorted_by_rank(folder.glob("zero_pp_rank_*_model_states.pt")) or list(
            folder.glob("mp_rank_00_model_states.pt"))
        if list(folder.glob("*mp_rank_01*")):
            refuse(f"{folder}: model parallelism is not supported")
        if not model_paths or not (universal or optim_paths):
            refuse(f"{folder}: holds no DeepSpeed ZeRO checkpoint")
        model_files = [load(path) for path in model_paths]
        self.model = model_files[0]
        self.config = self.model.get("ds_config") or {}
        optimizer = self.config.get("optimizer") or {}
        self.optimizer = optimizer.get("type", "AdamW")
        if self.optimizer not in STATES:
            refuse(f"{folder}: the optimizer {self.optimizer} is not one of {', '.join(STATES)}")
        momentum = (optimizer.get("params") or {}).get("momentum", 0)
        self.states = STATES[self.optimizer] if self.optimizer != "SGD" or momentum else ()
        shapes = {name: shape for group in self.model.get("param_shapes") or [] for name, shape in group.items()}
        if universal:
            shared = set(self.model.get("shared_params") or {})
            step = read_universal(folder, self.states, self.parameters, shared)
        else:
            optim = [load(path) for path in optim_paths]
            expected = self.model.get("dp_world_size", len(optim))
            if len(optim) != expected:
                refuse(f"{folder}: {len(optim)} files of optimizer state, {expected} ranks wrote some")
            stage_3 = "fp32_flat_groups" in optim[0]["optimizer_state_dict"]
            read = read_stage_3 if stage_3 else read_stage_1_or_2
            step = read(folder, optim, self.states, self.parameters, shapes)
        read_frozen(model_files, self.model, self.parameters)
        missing = [name for name in shapes if name not in self.parameters]
        if missing:
            refuse(f"{folder}: no values of {', '.join(missing[:5])}")
        self.step = int(self.model["global_steps"])
        skipped = int(self.model.get("skipped_steps", 0))
        self.applied = int(step) if step is not None else self.step - skipped
        self.samples = int(self.model.get("global_samples", 0))


def renamed(parameters, renames):
    result = {}
    for name, parameter in parameters.items():
        for old, new in renames:
            if name.startswith(old):
                name = new + name[len(old):]
                break
        if name in result:
            refuse(f"--rename gives {name} twice")
        result[name] = parameter
    return result


def digest(*pieces):
    state = xxhash.xxh3_128()
    for piece in pieces:
        state.update(piece)
    return state.hexdigest()


def entries_of(checkpoint, names):
    """(parameter, kind, element width) in the order of the data: wide elements first."""
    entries = []
    for width in (4, 2):
        for number, name in enumerate(names):
            parameter = checkpoint.parameters[name]
            if (4 if parameter.dtype == "F32" else 2) != width or product(parameter.shape) == 0:
                continue
            for kind in range(1 + (len(checkpoint.states) if parameter.trainable else 0)):
                entries.append((number, kind, width))
    return entries


def header_of(checkpoint, names, entries, save_id):
    header, end = {"__metadata__": {"format": "zerocore-checkpoint", "save_id": save_id}}, 0
    for number, kind, width in entries:
        parameter, begin = checkpoint.parameters[names[number]], end
        end += product(parameter.shape) * width
        state = f":{checkpoint.states[kind - 1]}" if kind else ""
        header[f"{names[number]}{state}@0"] = {
            "dtype": "F32" if kind else parameter.dtype, "shape": [product(parameter.shape)],
            "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def values_of(parameter, kind, states):
    """Little-endian bytes, the values finite."""
    name = states[kind - 1] if kind else "fp32"
    tensor = parameter.read[name]().contiguous()
    if kind or parameter.trainable:
        tensor = tensor.float()
    if tensor.numel() != product(parameter.shape):
        refuse(f"{name} has {tensor.numel()} elements, its shape is {parameter.shape}")
    return tensor.view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def write_shard(path, checkpoint, names, entries, header):
    """The digests of its chunks."""
    chunks, pending = [], xxhash.xxh3_128()
    filled = 0
    with open(path, "xb") as file:
        file.write(header)
        for number, kind, _ in entries:
            data = memoryview(values_of(checkpoint.parameters[names[number]], kind, checkpoint.states))
            file.write(data)
            while data:
                piece, data = data[:CHUNK - filled], data[CHUNK - filled:]
                pending.update(piece)
                filled += len(piece)
                if filled == CHUNK:
                    chunks.append(pending.hexdigest())
                    pending, filled = xxhash.xxh3_128(), 0
        bytes_written = file.tell()
    if filled:
        chunks.append(pending.hexdigest())
    return bytes_written, chunks


def config_lines(value, path=""):
    if isinstance(value, dict) and value:
        return [line for key in value for line in config_lines(value[key], f"{path}.{key}" if path else str(key))]
    return [f"{path} = {json.dumps(value, default=str)}"]


def write(checkpoint, output, tag, source):
    if output.exists() and any(output.iterdir()):
        refuse(f"{output} is not empty; give a new directory")
    names = list(checkpoint.parameters)
    save_id = digest(str(source.absolute()).encode(), tag.encode(), struct.pack("<q", checkpoint.step))
    folder = output / f".tmp-{tag}-{save_id}"
    folder.mkdir(mode=0o700, parents=True)
    shard = "shard-00001-of-00001.safetensors"
    entries = entries_of(checkpoint, names)
    header = header_of(checkpoint, names, entries, save_id)
    total, chunks = write_shard(folder / shard, checkpoint, names, entries, header)
    scheduler = (checkpoint.config.get("scheduler") or {}).get("type") or ""
    manifest = json.dumps({
        "format": "zerocore-checkpoint", "schema": 2, "save_id": save_id, "tag": tag, "sequence": 1,
        "step": checkpoint.step, "applied_steps": checkpoint.applied, "skipped_in_a_row": 0,
        "samples": checkpoint.samples, "optimizer": {"type": checkpoint.optimizer, "states": list(checkpoint.states)},
        "scheduler": {"type": scheduler},
        "parameters": [{"name": name, "shape": parameter.shape, "dtype": parameter.dtype,
                        "trainable": parameter.trainable} for name, parameter in checkpoint.parameters.items()],
        "files": [{"name": shard, "bytes": total,
                   "digest": digest(header, *(chunk.encode() for chunk in chunks)), "chunk_digests": chunks}],
        "client_state": {"converted_from": f"DeepSpeed {checkpoint.model.get('ds_version', '')}".strip()},
        "config": "\n".join(config_lines(checkpoint.config)), "equality": {}}) + "\n"
    (folder / "manifest.json").write_text(manifest)
    (folder / "manifest.xxh3").write_text(f"xxh3-128 {digest(manifest.encode())}  manifest.json\n")
    folder.rename(output / tag)
    (output / "latest").write_text(tag + "\n")


def find(path, tag):
    if list(path.glob("*_model_states.pt")):
        return path
    if tag is None and (path / "latest").is_file():
        tag = (path / "latest").read_text().strip()
    if tag is None or not (path / tag).is_dir():
        refuse(f"{path}: no DeepSpeed checkpoint {tag or ''} in it; name one with --tag")
    return path / tag


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("deepspeed", type=pathlib.Path, help="DeepSpeed's directory, or the folder of one tag")
    parser.add_argument("output", type=pathlib.Path, help="a new directory")
    parser.add_argument("--tag", help="which one; default: what `latest` says")
    parser.add_argument("--rename", metavar="OLD=NEW", action="append", default=[],
                        help="names that begin with OLD begin with NEW instead")
    arguments = parser.parse_args()
    if any("=" not in rename for rename in arguments.rename):
        parser.error("--rename wants OLD=NEW")
    folder = find(arguments.deepspeed, arguments.tag)
    checkpoint = Checkpoint(folder)
    checkpoint.parameters = renamed(checkpoint.parameters, [rename.split("=", 1) for rename in arguments.rename])
    tag = f"step-{checkpoint.step}"
    write(checkpoint, arguments.output, tag, folder)
    print(f"wrote {arguments.output / tag}: {len(checkpoint.parameters)} parameters after step {checkpoint.step}")


if __name__ == "__main__":
    main()
