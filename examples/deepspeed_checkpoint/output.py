"""Writes a checkpoint of ZeroCore: one shard, its manifest and the manifest's digest."""

import json
import math
import struct

import torch
import xxhash

from problems import refuse

CHUNK = 4 << 20
WIDTHS = {"F32": 4, "BF16": 2, "F16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1, "F64": 8, "C64": 8,
          "F8_E4M3": 1, "F8_E5M2": 1}


def digest(*pieces):
    state = xxhash.xxh3_128()
    for piece in pieces:
        state.update(piece)
    return state.hexdigest()


def entries_of(checkpoint, names):
    """Returns (parameter, kind, element width) in the order of the data: wide elements first."""
    entries = []
    for width in (8, 4, 2, 1):
        for number, name in enumerate(names):
            parameter = checkpoint.parameters[name]
            if WIDTHS[parameter.dtype] != width or math.prod(parameter.shape) == 0:
                continue
            for kind in range(1 + (len(checkpoint.states) if parameter.trainable else 0)):
                entries.append((number, kind, width))
    return entries


def header_of(checkpoint, names, entries, save_id):
    header, end = {"__metadata__": {"format": "zerocore-checkpoint", "save_id": save_id}}, 0
    for number, kind, width in entries:
        parameter, begin = checkpoint.parameters[names[number]], end
        end += math.prod(parameter.shape) * width
        state = f":{checkpoint.states[kind - 1]}" if kind else ""
        header[f"{names[number]}{state}@0"] = {
            "dtype": "F32" if kind else parameter.dtype, "shape": [math.prod(parameter.shape)],
            "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def values_of(parameter, kind, states):
    """Returns the values as little-endian bytes."""
    name = states[kind - 1] if kind else "fp32"
    tensor = parameter.read[name]().contiguous()
    if kind or parameter.trainable:
        tensor = tensor.float()
    if tensor.numel() != math.prod(parameter.shape):
        refuse(f"{name} has {tensor.numel()} elements, its shape is {parameter.shape}")
    return tensor.view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def write_shard(path, checkpoint, names, entries, header):
    """Writes the shard and returns the digests of its chunks."""
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


def described(name, parameter):
    entry = {"name": name, "shape": parameter.shape, "dtype": parameter.dtype, "trainable": parameter.trainable}
    if parameter.buffer:
        entry["buffer"] = True
    return entry


def manifest_of(checkpoint, tag, save_id, file):
    manifest = {
        "format": "zerocore-checkpoint", "schema": 2, "save_id": save_id, "tag": tag, "sequence": 1,
        "step": checkpoint.step, "applied_steps": checkpoint.applied, "skipped_in_a_row": 0,
        "samples": checkpoint.samples, "optimizer": {"type": checkpoint.optimizer, "states": list(checkpoint.states)},
        "scheduler": {"type": (checkpoint.config.get("scheduler") or {}).get("type") or ""},
        "parameters": [described(name, parameter) for name, parameter in checkpoint.parameters.items()],
        "files": [file],
        "client_state": {"converted_from": f"DeepSpeed {checkpoint.model.get('ds_version', '')}".strip()},
        "program_state": {"bytes": len(checkpoint.program_state), "digest": digest(checkpoint.program_state)},
        "config": "\n".join(config_lines(checkpoint.config)), "equality": {}}
    scaler = checkpoint.loss_scaler()
    if scaler:
        manifest["loss_scaler"] = scaler
    if checkpoint.without_frozen:
        manifest["without_frozen"] = True
    return json.dumps(manifest) + "\n"


def write(checkpoint, output, tag):
    if output.exists() and any(output.iterdir()):
        refuse(f"{output} is not empty; give a new directory")
    names = list(checkpoint.parameters)
    source = str(checkpoint.folder.absolute()).encode()
    save_id = digest(source, tag.encode(), struct.pack("<q", checkpoint.step))
    folder = output / f".tmp-{tag}-{save_id}"
    folder.mkdir(mode=0o700, parents=True)
    shard = "shard-00001-of-00001.safetensors"
    entries = entries_of(checkpoint, names)
    header = header_of(checkpoint, names, entries, save_id)
    total, chunks = write_shard(folder / shard, checkpoint, names, entries, header)
    manifest = manifest_of(checkpoint, tag, save_id, {
        "name": shard, "bytes": total, "digest": digest(header, *(chunk.encode() for chunk in chunks)),
        "chunk_digests": chunks})
    (folder / "program_state").write_bytes(checkpoint.program_state)
    (folder / "manifest.json").write_text(manifest)
    (folder / "manifest.xxh3").write_text(f"xxh3-128 {digest(manifest.encode())}  manifest.json\n")
    folder.rename(output / tag)
    (output / "latest").write_text(tag + "\n")
