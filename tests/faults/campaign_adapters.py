"""Faults that appear in jobs of tests/faults/adapter_program.cpp: batches of single ranks, and the base under
adapters."""

import json
import struct

from campaign_case import DISAGREEMENT, LOAD, fault_class, launch


def write_base(path, random):
    """Writes the frozen base of tests/faults/adapter_program.cpp: four layers of 300 values."""
    header = {f"l{layer}.w": {"dtype": "F32", "shape": [300], "data_offsets": [1200 * layer, 1200 * (layer + 1)]}
              for layer in range(4)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    values = [random.uniform(-1, 1) for _ in range(1200)]
    path.write_bytes(struct.pack("<Q", len(text)) + text + struct.pack("<1200f", *values))


def train_adapter(case, folder, steps, policy, batches, codes=(0,), words=()):
    """Returns the program's output."""
    case.expect_any_bits()
    job = launch.Job(launch.mpirun(case.programs.mpiexec, len(batches), case.programs.adapter_program,
                                   str(case.folder / "base.safetensors"), str(case.folder / folder), str(case.stage),
                                   str(steps), policy, *map(str, batches)), case.folder)
    case.end(job, codes, *words)
    return job.printed()


@fault_class("uneven batches, ranks without data", 6)
def uneven_batches(case):
    """If a rank without a batch leaves its units out, the bits are those of zero gradients; if it stops alone, the job
    ends with its name."""
    case.ranks = case.random.choice((2, 3))
    write_base(case.folder / "base.safetensors", case.random)
    batches = [case.random.randint(0, 8) for _ in range(case.ranks)]
    if len(set(batches)) == 1:
        batches[0] += 1
    case.note(f"{batches} batches, stage {case.stage}")
    left_out = train_adapter(case, "a", 8, "leave", batches)
    case.require("digest" in left_out and left_out == train_adapter(case, "b", 8, "zeros", batches),
                 f"other bits where units are left out: {left_out}")
    train_adapter(case, "c", 8, "stop", batches, (DISAGREEMENT,), ["rank [0-2]"])


@fault_class("another base under adapters", 4)
def changed_base(case):
    case.ranks = case.random.choice((1, 2, 3))
    base = case.folder / "base.safetensors"
    write_base(base, case.random)
    batches = [8] * case.ranks
    whole = train_adapter(case, "whole", 8, "leave", batches)
    train_adapter(case, "a", 4, "leave", batches)
    right = base.read_bytes()
    place = len(right) - 4 * case.random.randint(1, 1200)
    other = bytearray(right)
    other[place] ^= 1
    base.write_bytes(other)
    case.note(f"byte {place} of {len(right)}")
    train_adapter(case, "a", 8, "leave", batches, (LOAD,), ["frozen parameter l[0-3].w"])
    base.write_bytes(right)
    case.require(train_adapter(case, "a", 8, "leave", batches) == whole, "not the bits of the undisturbed run")
