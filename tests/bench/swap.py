"""Optimizer steps over state in a file, in turns with fio's mixed reads and writes in the same file.

usage: swap.py BENCH_SWAP DIRECTORY [MILLION_ELEMENTS [PAIRS]]

DIRECTORY decides the disk. AdamW over fp32 parameters at stage 1 on one rank: a step reads and writes two moments, 8
bytes an element each way, in blocks of 1 MiB; 8 reads and 8 writes are in flight. fio does the same after our bytes in
the file: a job that reads and one that writes, or one job of mixed reads and writes with depth 16, whichever is faster.
The same step with its state in memory gives the time that could be hidden; the hidden part is that time minus the
step's excess over fio. The same at stage 2, with gradients in the file too, without fio.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import turns

BLOCK, DEPTH = 1 << 20, 8
MIB = 1 << 20


def contestant(program, place, millions, stage):
    return turns.Contestant(f"step, state in {place}",
                            [program, turns.DIRECTORY, place, millions, BLOCK, DEPTH, stage], 1)


def file_of(pid, directory):
    """Returns the rank's file, which has no name."""
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        if os.readlink(link).startswith(os.path.realpath(directory)) and link.stat().st_size > 0:
            return link
    sys.exit(f"no file of process {pid} in {directory}")


class Fio:
    """Reads and writes after the engine's part of its file, as many bytes each way as a step."""

    def __init__(self, path):
        self.path, self.bytes = path, path.stat().st_size // BLOCK * BLOCK
        self.offset = (path.stat().st_size + BLOCK - 1) // BLOCK * BLOCK
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), self.offset, self.bytes)
        self.run({"write": DEPTH})  # writes all of it first, since reads of unwritten blocks need no disk

    def run(self, jobs):
        """Returns the seconds of the slowest job; jobs are given with their depth."""
        command = ["fio", f"--filename={self.path}", f"--bs={BLOCK}", f"--offset={self.offset}", f"--size={self.bytes}",
                   "--direct=1", "--ioengine=io_uring", "--fixedbufs=1", "--allow_file_create=0", "--thread",
                   "--output-format=json"]
        for kind, depth in jobs.items():
            total = self.bytes * (2 if kind == "rw" else 1)
            command += [f"--name={kind}", f"--rw={kind}", f"--io_size={total}", f"--iodepth={depth}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"fio: {done.stdout}{done.stderr}")
        found = json.loads(done.stdout)["jobs"]
        return max(job[direction]["runtime"] for job in found for direction in ("read", "write")) / 1e3

    def turn(self):
        return min(self.run({"read": DEPTH, "write": DEPTH}), self.run({"rw": 2 * DEPTH}))


FIGURES = ("step", "passes")


def figures_of(engine):
    engine.turn()
    return dict(zip(FIGURES, engine.notes))


def measure(program, directory, millions, pairs, stage):
    """Measures with the state in a file and in memory, and with fio if requested, in turns."""
    with tempfile.TemporaryDirectory(dir=directory) as inner, contestant(program, inner, millions, stage) as swap, \
            contestant(program, "none", millions, stage) as memory:
        fio = Fio(file_of(swap.pids[0], inner)) if stage == 1 else None
        swaps, memories, fios = [], [], []
        for pair in range(-2, pairs):
            if fio and pair % 2:
                fios.append(fio.turn())
            swaps.append(figures_of(swap))
            if fio and pair % 2 == 0:
                fios.append(fio.turn())
            memories.append(figures_of(memory))
        return swaps[2:], memories[2:], fios[2:], fio and 2 * fio.bytes


def show(name, found):
    low, high = turns.interval(found)
    print(f"{name}: {statistics.median(found):.3f} [{low:.3f}, {high:.3f}]")


def main():
    program, directory = sys.argv[1:3]
    millions = int(sys.argv[3]) if len(sys.argv) > 3 else 96
    pairs = int(sys.argv[4]) if len(sys.argv) > 4 else 15
    for stage in (1, 2):
        swaps, memories, fios, moved = measure(program, directory, millions, pairs, stage)
        print(f"stage {stage}: {pairs} pairs, medians")
        for name in FIGURES:
            print(f"  {name.replace('_', ', ')}: {statistics.median(found[name] for found in swaps):.3f} s")
        print(f"  step, state in memory: {statistics.median(found['step'] for found in memories):.3f} s")
        if fios:
            print(f"  fio: {statistics.median(fios):.3f} s, {moved / MIB:.0f} MiB")
            show("speed as a share of fio's", [theirs / ours["step"] for ours, theirs in zip(swaps, fios)])
            show("share of the step in memory that is hidden",
                 [min(1, 1 - (ours["step"] - theirs) / memory["step"]) for ours, memory, theirs in zip(swaps, memories, fios)])


if __name__ == "__main__":
    main()
