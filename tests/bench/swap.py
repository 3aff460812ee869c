"""Optimizer steps over state in a file, in turns with fio's mixed reads and writes in the same file.

usage: swap.py BENCH_SWAP DIRECTORY [MILLION_ELEMENTS [PAIRS]]

DIRECTORY decides the disk. AdamW over fp32 parameters at stage 1 on one rank: a step reads and writes two moments, 8
bytes an element each way, in blocks of 1 MiB of which 8 are under way for reads and 8 for writes. fio does the same
behind our bytes: a job that reads and one that writes, or one job of mixed reads and writes with depth 16, whichever is
faster. The same step with its state in memory says how much there is to hide. Two measures of what is hidden: of norm,
update and checksums, the share of their time in which requests were under way; and, of their time where the state is in
memory, what a step does not take longer than its requests, of which some were under way before it.
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


def contestant(program, place, millions):
    return turns.Contestant(f"step, state in {place}", [program, turns.DIRECTORY, place, millions, BLOCK, DEPTH], 1)


def file_of(pid, directory):
    """The rank's file, which has no name."""
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        if os.readlink(link).startswith(os.path.realpath(directory)) and link.stat().st_size > 0:
            return link
    sys.exit(f"no file of process {pid} in {directory}")


class Fio:
    """Reads and writes behind what the engine uses of its file, as many bytes each way as a step."""

    def __init__(self, path):
        self.path, self.bytes = path, path.stat().st_size // BLOCK * BLOCK
        self.offset = (path.stat().st_size + BLOCK - 1) // BLOCK * BLOCK
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), self.offset, self.bytes)
        self.run({"write": DEPTH})  # what was never written reads without the disk

    def run(self, jobs):
        """Seconds of the slowest of the jobs, which are given with their depth."""
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


FIGURES = ("step", "passes", "requests", "optimizer", "optimizer_hidden", "checksums", "checksums_hidden")


def figures_of(engine):
    engine.turn()
    return dict(zip(FIGURES, engine.notes))


def hidden_shares(file, memory):
    """Of work beside the file: as the engine saw it, and by the length of the step."""
    work = memory["step"] + file["checksums"]
    return ((file["optimizer_hidden"] + file["checksums_hidden"]) / (file["optimizer"] + file["checksums"]),
            min(1, 1 - (file["step"] - file["requests"]) / work))


def main():
    program, directory = sys.argv[1:3]
    millions = int(sys.argv[3]) if len(sys.argv) > 3 else 96
    pairs = int(sys.argv[4]) if len(sys.argv) > 4 else 15
    with tempfile.TemporaryDirectory(dir=directory) as inner, contestant(program, inner, millions) as swap, \
            contestant(program, "none", millions) as memory:
        fio = Fio(file_of(swap.pids[0], inner))
        for _ in range(2):
            figures_of(swap), figures_of(memory), fio.turn()
        swaps, fios, memories = [], [], []
        for pair in range(pairs):
            if pair % 2 == 0:
                swaps.append(figures_of(swap)), fios.append(fio.turn())
            else:
                fios.append(fio.turn()), swaps.append(figures_of(swap))
            memories.append(figures_of(memory))
    moved = 2 * fio.bytes
    print(f"{moved / MIB:.0f} MiB a step, {pairs} pairs, medians")
    middle = {name: statistics.median(found[name] for found in swaps) for name in FIGURES}
    for name, seconds in (("step with its state in a file", middle["step"]), ("fio", statistics.median(fios))):
        print(f"{name}: {seconds:.3f} s, {moved / seconds / 1e9:.2f} GB/s")
    for name in FIGURES[1:]:
        print(f"  {name.replace('_', ', ')}: {middle[name]:.3f} s")
    print(f"step with its state in memory: {statistics.median(found['step'] for found in memories):.3f} s")
    shares = [hidden_shares(*found) for found in zip(swaps, memories)]
    for name, found in (("speed as a share of fio's", [theirs / ours["step"] for ours, theirs in zip(swaps, fios)]),
                        ("share of norm, update and checksums while requests were under way", [s[0] for s in shares]),
                        ("share hidden by the length of the step", [s[1] for s in shares])):
        low, high = turns.interval(found)
        print(f"{name}: {statistics.median(found):.3f} [{low:.3f}, {high:.3f}]")


if __name__ == "__main__":
    main()
