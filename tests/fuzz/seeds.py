"""Seeds of the fuzz targets: good inputs, and the attack shapes that safetensors publishes in its `attacks` folder and
its validator's tests."""

import json
import os
import pathlib
import struct


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_fuzz():
    good = {"__metadata__": {"format": "pt"}, "a": tensor([2], 0, 8), "b": tensor([2, 1], 8, 12, "BF16")}
    yield safetensors(good, bytes(12))
    yield safetensors({}, b"")
    yield safetensors({"a": tensor([], 0, 4)}, bytes(4))
    yield safetensors({"a": tensor([0, 3], 0, 0)}, b"")
    # Published attacks and errors: one tensor over another, many over the same bytes, a hole, beyond the file, a
    # polyglot after the data, products that wrap, names given twice, endless headers, pickles and archives.
    yield safetensors({"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}, bytes(12))
    yield safetensors({f"x{i}": tensor([2], 0, 8) for i in range(40)}, bytes(8))
    yield safetensors({f"x{i}": tensor([0], 0, 0) for i in range(40)}, b"")
    yield safetensors({"a": tensor([2], 0, 8), "b": tensor([2], 12, 20)}, bytes(20))
    yield safetensors({"a": tensor([1 << 20], 0, 4 << 20)}, bytes(8))
    yield safetensors({"a": tensor([2], 0, 8)}, bytes(8) + b"PK\3\4")
    yield safetensors({"a": tensor([1 << 62, 4], 0, 0)}, b"")
    yield safetensors({"a": tensor([(1 << 64) - 1, 2], 0, 8)}, bytes(8))
    yield safetensors(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
                      b'"a":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}}', bytes(8))
    yield safetensors(b'{"a":{"dtype":"F32","dtype":"I8","shape":[2],"data_offsets":[0,8]}}', bytes(8))
    yield safetensors({"a": tensor([2], 8, 0)}, bytes(8))
    yield safetensors(b'{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}', bytes(8))
    yield safetensors(b'{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8e0]}}', bytes(8))
    yield safetensors(b"[" * 2000)
    yield safetensors(b'{"a":' * 500)
    yield safetensors(b" {}")
    yield safetensors(b"{}", length=1 << 63)
    yield safetensors(b"{}", length=0)
    yield safetensors(b'{"\xff\xfe":{}}')
    yield safetensors({"__metadata__": {"a": 1}})
    yield b"\x80\x02}q\x00."
    yield b"PK\3\4" + bytes(40)


def manifest():
    return {
        "format": "zerocore-checkpoint", "schema": 2, "save_id": "7" * 32, "tag": "step-3", "sequence": 1, "step": 3,
        "applied_steps": 3, "skipped_in_a_row": 0, "samples": 12,
        "optimizer": {"type": "SGD", "states": ["momentum_buffer"]}, "scheduler": {"type": ""},
        "parameters": [{"name": "a.weight", "shape": [3, 5], "dtype": "F32", "trainable": True},
                       {"name": "a.frozen", "shape": [7], "dtype": "BF16", "trainable": False}],
        "files": [{"name": "shard-1", "bytes": 234, "digest": "0" * 32, "chunk_digests": ["1" * 32]}],
        "client_state": {"a": "b"}, "config": "", "equality": {"ranks": "1"}}


def changed(path, value):
    document = manifest()
    target = document
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return json.dumps(document).encode()


def manifest_fuzz():
    yield json.dumps(manifest()).encode()
    for path, value in (
            (("files", 0, "name"), "../shard"), (("files", 0, "name"), "/etc/passwd"), (("schema",), 1),
            (("schema",), 3), (("files", 0, "bytes"), (1 << 63) - 1), (("files", 0, "chunk_digests"), []),
            (("parameters", 0, "shape"), [1 << 32, 1 << 32]), (("parameters", 0, "shape"), [-1]),
            (("parameters", 1, "name"), "a.weight"), (("parameters", 1, "name"), "a.weight:momentum_buffer"),
            (("parameters", 0, "dtype"), "I8"), (("config",), [[[[[[[[[1]]]]]]]]]), (("step",), 1.5)):
        yield changed(path, value)
    yield b"[" * 1000
    yield b'{"format":"zerocore-checkpoint","format":"x"}'
    # The header of a file, in place of the manifest.
    tensors = {"__metadata__": {"save_id": "7"}, "a@0": tensor([15], 0, 60), "a:m@0": tensor([15], 60, 120)}
    yield json.dumps(tensors).encode()
    for name in ("a@1", "a@-1", "a@00", "a", "@0", "b@0", "a:n@0", "a@9223372036854775807"):
        yield json.dumps(tensors).replace('"a@0"', json.dumps(name)).encode()


def checkpoint_fuzz():
    for seed in manifest_fuzz():
        yield b"\0" + seed
        yield b"\4" + seed
    yield b"\1xxh3-128 " + b"0" * 32 + b"  manifest.json\n"
    for seed in safetensors_fuzz():
        yield b"\2" + seed
    for text in (b"step-3\n", b"", b"../..", b"\0", b"x" * 5000):
        yield b"\3" + text


def model_index_fuzz():
    files = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    good = {"metadata": {"total_size": 32}, "weight_map": dict(zip("ab", files))}
    yield json.dumps(good).encode()
    for weight_map in ({}, {"a": "../x"}, {"a": "/etc/passwd"}, {"a": files[1]}, {"a": "missing"}, {"a": 1}, [], None):
        yield json.dumps({**good, "weight_map": weight_map}).encode()


def config_fuzz():
    """Yields real configs if ZERO_DS_CONFIGS names a folder of them, and a few of every kind."""
    folder = os.environ.get("ZERO_DS_CONFIGS")
    for file in sorted(pathlib.Path(folder).glob("*.json")) if folder else ():
        yield file.read_bytes()
    yield json.dumps({"train_batch_size": 8, "bf16": {"enabled": "auto"}, "zero_optimization": {
        "stage": 3, "offload_param": {"device": "none"}, "stage3_prefetch_bucket_size": 5e7}}).encode()
    yield b'{"train_micro_batch_size_per_gpu": "auto"}'
    yield json.dumps({"optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": [0.9, 0.95]}},
                      "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 9}}}).encode()
    yield b"# Hjson\nstage: [1 # one\n2,]\nzero_optimization: {stage: 3}\nlog: /tmp/a, b}\n"
    yield json.dumps({"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2}}).encode()
    yield b"\1distributed_type: FSDP\nmixed_precision: bf16\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"
    yield b"\1distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n"


def of(target):
    return globals()[target]()
