"""Measures programs in turns: all ranks of both stay resident, one program works while the other sleeps.

A contestant is a command whose ranks open DIRECTORY/RANK.in and DIRECTORY/RANK.out, answer "ready PID", and then for
each number N on the one pipe do N steps and answer "SECONDS NOTE" on the other (turns.h; peers/turns_peer.py). Turns
next to each other in time are compared, since the ratio of a pair is free of the machine's slow drift.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

DIRECTORY = "{turns}"  # replaced in a command by the contestant's pipes

START_LIMIT_S, TURN_LIMIT_S = 600, 300


class Contestant:
    """with Contestant(name, command, ranks) as c: c.turn() -> seconds of its slowest rank.

    The command starts all ranks, or one of them if `each` is set: then it is started for every rank.
    """

    def __init__(self, name, command, ranks, environment=None, each=False):
        self.name, self.ranks, self.each = name, ranks, each
        self.command = list(map(str, command))
        self.environment = {**os.environ, **(environment or {})}
        self.note, self.notes = None, []

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the ranks end too
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="turns"))
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        pipes = [self.folder / f"{rank}.{end}" for rank in range(self.ranks) for end in ("in", "out")]
        for pipe in pipes:
            os.mkfifo(pipe)
        self.log = open(self.folder / "log", "w+")
        self.processes = [self.launch(rank) for rank in range(self.ranks if self.each else 1)]
        # Opened for both directions, since such an open never blocks; if a rank dies, the time limit ends the wait.
        self.orders = [open(os.open(pipe, os.O_RDWR), "w") for pipe in pipes[0::2]]
        self.answers = [open(os.open(pipe, os.O_RDWR), "r") for pipe in pipes[1::2]]
        ready = self.listen(START_LIMIT_S)
        self.pids = [int(line.split()[1]) for line in ready]

    def launch(self, rank):
        words = [word.replace(DIRECTORY, str(self.folder)) for word in self.command]
        return subprocess.Popen(words, env={**self.environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                                stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)

    def listen(self, limit_s):
        """Returns one line of every rank."""
        lines = [None] * self.ranks

        def read(rank):
            lines[rank] = self.answers[rank].readline()

        readers = [threading.Thread(target=read, args=(rank,), daemon=True) for rank in range(self.ranks)]
        for reader in readers:
            reader.start()
        deadline = time.monotonic() + limit_s
        while any(reader.is_alive() for reader in readers):
            if time.monotonic() > deadline or any(p.poll() is not None for p in self.processes):
                self.log.seek(0)
                raise RuntimeError(f"{self.name}: a rank ended, or gave no answer in {limit_s} s:\n{self.log.read()}")
            readers[0].join(0.2)
            for reader in readers:
                reader.join(0.001)
        return lines

    def turn(self, steps=1):
        """Returns seconds per step of the slowest rank."""
        for orders in self.orders:
            orders.write(f"{steps}\n")
            orders.flush()
        answers = [line.split() for line in self.listen(TURN_LIMIT_S)]
        self.notes = [float(figure) for figure in answers[0][1].split(",")]
        self.note = self.notes[0]
        return max(float(seconds) for seconds, _ in answers) / steps

    def resident_bytes(self):
        """Returns the largest rank's PSS: each rank counts its share of a page that several ranks map."""
        return max(proportional_set_size(pid) for pid in self.pids)

    def peak_resident_bytes(self, steps=2, interval_s=0.1):
        """Returns the largest sample while it works. These steps are not for timing, since sampling disturbs them."""
        peak, done = [0], threading.Event()

        def sample():
            while not done.is_set():
                peak[0] = max(peak[0], self.resident_bytes())
                done.wait(interval_s)

        sampler = threading.Thread(target=sample)
        sampler.start()
        for _ in range(steps):
            self.turn()
        done.set()
        sampler.join()
        return max(peak[0], self.resident_bytes())

    def __exit__(self, *_):
        for process in getattr(self, "processes", []):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in getattr(self, "processes", []):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def proportional_set_size(pid):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no PSS of process {pid}")


def interval(values, share=0.95, draws=4000):
    """Returns the interval of the median, by bootstrap."""
    generator = random.Random(1)
    medians = sorted(statistics.median(generator.choices(values, k=len(values))) for _ in range(draws))
    cut = (1 - share) / 2
    return medians[int(cut * draws)], medians[int((1 - cut) * draws) - 1]


def play(ours, peer, pairs=15, warmup=3, steps=1):
    """Returns seconds of both, turn by turn; they alternate in who begins."""
    for _ in range(warmup):
        ours.turn(steps)
        peer.turn(steps)
    times = {ours: [], peer: []}
    for pair in range(pairs):
        for contestant in (ours, peer) if pair % 2 == 0 else (peer, ours):
            times[contestant].append(contestant.turn(steps))
    return times[ours], times[peer]


def summary(ours_s, peer_s):
    """Returns medians, and the paired ratio peer/ours with its 95 % interval: above 1, ours is faster."""
    ratios = [p / o for o, p in zip(ours_s, peer_s)]
    low, high = interval(ratios)
    return {"pairs": len(ratios), "ours_ms": 1e3 * statistics.median(ours_s), "peer_ms": 1e3 * statistics.median(peer_s),
            "ratio": statistics.median(ratios), "low": low, "high": high}


def report(names, result, file=None):
    """Prints one line for people; with a file, also writes one JSON object for tables."""
    more = "".join(f"  {key} {value:.1f}" for key, value in result.items() if key.endswith(("mib", "_s")))
    print(f"{names[0]:24} {result['ours_ms']:9.2f} ms  {names[1]:24} {result['peer_ms']:9.2f} ms  "
          f"ratio {result['ratio']:.3f} [{result['low']:.3f}, {result['high']:.3f}] of {result['pairs']}{more}", flush=True)
    if file:
        with open(file, "a") as out:
            out.write(json.dumps({"ours": names[0], "peer": names[1], **result}) + "\n")
