"""Optimizer steps over state in a file, in turns with fio's mixed reads and writes in the same file.

usage: swap.py BENCH_SWAP DIRECTORY [MILLION_ELEMENTS [PAIRS]]

DIRECTORY decides the disk. AdamW over fp32 parameters at stage 1 on one rank: a step reads and writes two moments, 8
bytes an element each way, in blocks of 1 MiB of which 8 are under way for reads and 8 for writes. fio does the same
behind our bytes: a job that reads and one that writes, or one job of mixed reads and writes with depth 16, whichever is
faster. The same step with its state in memory says how much there is to hide; what is not hidden is the time in which
nothing is under way.
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


def contestant(program, place, millions, what="all"):
    return turns.Contestant(f"{what} of a step, state in {place}",
                            [program, turns.DIRECTORY, place, millions, BLOCK, DEPTH, what], 1)


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


def note_of(engine):
    engine.turn()
    return engine.note


def main():
    program, directory = sys.argv[1:3]
    millions = int(sys.argv[3]) if len(sys.argv) > 3 else 96
    pairs = int(sys.argv[4]) if len(sys.argv) > 4 else 15
    with tempfile.TemporaryDirectory(dir=directory) as inner, contestant(program, inner, millions) as swap, \
            contestant(program, "none", millions) as memory, \
            contestant(program, inner, millions, "uncovered") as uncovered:
        fio = Fio(file_of(swap.pids[0], inner))
        for _ in range(2):
            note_of(swap), note_of(memory), note_of(uncovered), fio.turn()
        times = {swap: [], fio: [], memory: [], uncovered: []}
        for pair in range(pairs):
            for turn in ((swap, fio) if pair % 2 == 0 else (fio, swap)):
                times[turn].append(note_of(turn) if turn is swap else turn.turn())
            for turn in (memory, uncovered):
                times[turn].append(note_of(turn))
    ratios = [theirs / ours for ours, theirs in zip(times[swap], times[fio])]
    hidden = [1 - bare / step for bare, step in zip(times[uncovered], times[memory])]
    moved = 2 * fio.bytes
    print(f"{moved / MIB:.0f} MiB a step, {pairs} pairs, medians")
    for name, found in (("step with its state in a file", times[swap]), ("fio", times[fio])):
        middle = statistics.median(found)
        print(f"{name}: {middle:.3f} s, {moved / middle / 1e9:.2f} GB/s")
    print(f"step with its state in memory: {statistics.median(times[memory]):.3f} s")
    for name, found in (("speed as a share of fio's", ratios), ("share of the step hidden behind the file", hidden)):
        low, high = turns.interval(found)
        print(f"{name}: {statistics.median(found):.3f} [{low:.3f}, {high:.3f}]")


if __name__ == "__main__":
    main()
