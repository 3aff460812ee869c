"""Tests `zero run --restarts` with random schedules of faults, chosen by a seed: a rank, all ranks or a host is killed, or
a host is cut off, at a step, in a save or during a start. Some keep copies in memory, and some get a signal that asks for
the end at any moment, after which the same command is started again. Each training must end without help, with the losses
and weights of an undisturbed one, bit by bit, whatever its numbers of ranks were: zero_core.rank_independent is on.

usage: restarts_campaign.py MPIEXEC TRAIN_GPT ZERO [--schedules N] [--seed S] [--first I] [--not-in-starts]
"""

import argparse
import dataclasses
import os
import pathlib
import random
import re
import signal
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import launch  # noqa: E402
from multi_node_hosts import Hosts, NotAllowed  # noqa: E402

STEPS, SAVE_EVERY, RESTARTS, LIMIT_S = 60, 7, 8, 120
RARELY = 25  # steps between two saves, if there are copies in memory
MICRO, MICRO_BATCHES = 4, 12  # not all numbers of ranks divide these
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
STOP_LIMIT_S = 60  # from the signal to the end
PARTS = ("total", "end of the job", "pause", "start of the ranks", "load and first step")


@dataclasses.dataclass
class Fault:
    moment: str  # "step", "save", "start"
    step: int
    delay: float  # seconds after the start of a generation
    target: str  # "rank", "all", "stop" (a host's processes), "cut" (its link), "signal" (to `zero run`)
    rank: int
    away: float  # seconds until the link is back


@dataclasses.dataclass
class Schedule:
    ranks: int
    slots: list  # per host; one entry: this machine
    stage: int
    faults: list
    copy_every: int  # steps between two copies in memory; 0: none

    def text(self):
        copies = f", copies every {self.copy_every} steps" if self.copy_every else ""
        return f"{self.slots} stage {self.stage}{copies}"


CODES = {}  # after signals: their number


def draw(seed, number, may_have_hosts):
    chance = random.Random(f"{seed} {number}")
    ranks = chance.randint(2, 6)
    on_hosts = chance.random() < 0.4 and may_have_hosts
    first = chance.randint(1, ranks - 1)
    slots = [first, ranks - first] if on_hosts else [ranks]
    faults = []
    for _ in range(chance.choice((1, 1, 2, 3))):
        target = chance.choice(("rank", "rank", "all", "stop", "cut") if on_hosts else ("rank", "rank", "rank", "all"))
        moment = chance.choice(("step", "step", "save", "start"))
        if OPTIONS.not_in_starts and moment == "start":
            moment = "step"
        faults.append(Fault(moment, chance.randint(1, STEPS - 5),
                            chance.uniform(0, 0.8), target, chance.randrange(ranks), chance.uniform(1, 6)))
    if chance.random() < 0.4:
        moment = chance.choice(("step", "save", "start", "any"))
        faults.append(Fault(moment, chance.randint(1, STEPS), chance.uniform(0, 1.5), "signal", chance.randrange(4), 0))
    stage = chance.randint(0, 3)
    copy_every = chance.randint(2, 6) if chance.random() < 0.4 else 0
    return Schedule(ranks, slots, stage, faults, copy_every)


def program(stage, folder, copy_every=0):
    keys = {"train_batch_size": MICRO * MICRO_BATCHES, "train_micro_batch_size_per_gpu": MICRO,
            "zero_optimization.stage": stage, "zero_core.rank_independent": "true", "zero_core.time_limit_seconds": 20}
    if copy_every:
        keys |= {"zero_core.peer_copies": 1, "zero_core.peer_copies_every": copy_every}
    return [TRAIN_GPT, "--model", "tiny", "--sequence-length", "8", "--steps", str(STEPS), "--threads", "1",
            "--log-json", f"{folder}/log.json", "--checkpoint", f"{folder}/saves", "--save-every",
            str(RARELY if copy_every else SAVE_EVERY), "--keep", "3", *launch.settings(keys)]


def undisturbed_run():
    """Returns the result for all schedules: it depends on neither stage nor ranks."""
    with tempfile.TemporaryDirectory() as folder:
        job = launch.Job(launch.mpirun(MPIEXEC, 3, *program(2, folder)), folder)
        if job.finish(LIMIT_S) != 0:
            raise launch.Failed("the undisturbed run fails\n" + job.text())
        return launch.Run(f"{folder}/log.json", "")


class Supervised:
    """One training under `zero run`, with its schedule of faults."""

    def __init__(self, schedule, folder, hosts):
        self.schedule, self.folder, self.hosts = schedule, pathlib.Path(folder), hosts
        restarts = ["--restarts", str(RESTARTS), "--min-ranks", "1"]
        words, environment = program(schedule.stage, folder, schedule.copy_every), {}
        if hosts:
            command = hosts.zero_run(ZERO, MPIEXEC, *words, options=restarts)
            environment["OMPI_MCA_plm_rsh_agent"] = str(hosts.folder / "agent")
        else:
            command = [ZERO, "run", "-n", str(schedule.ranks), "--launcher", MPIEXEC, *restarts, *words]
        self.start = lambda: launch.Job(command, folder, environment)
        self.job = self.start()
        self.rejoin_at = self.signalled = None

    def error_text(self):
        return launch.content(self.job.errors)

    def generations(self):
        """Returns the number of ranks of each start so far."""
        return [int(n) for n in re.findall(r"^(?:\S*mpirun) -n (\d+)", self.error_text(), re.MULTILINE)]

    def steps(self):
        log = self.folder / "log.json"
        return log.read_text(errors="replace").count('"step":') if log.exists() else 0

    def saving(self):
        saves = self.folder / "saves"
        return saves.is_dir() and any(name.startswith(".tmp-step") for name in os.listdir(saves))

    def await_moment(self, fault):
        """Waits for the moment of the fault. Returns False if the training ends first."""
        begun = len(self.generations())
        noted = None
        while self.job.process.poll() is None:
            self.rejoin_if_due()
            if time.monotonic() - self.job.began > LIMIT_S:
                return False
            if fault.moment == "step" and self.steps() >= 1 and self.last_step() >= fault.step and self.job.ranks():
                return True
            if fault.moment == "save" and self.saving():
                return True
            if fault.moment == "any" and time.monotonic() - self.job.began >= fault.delay:
                return True
            if fault.moment == "start" and (len(self.generations()) > begun or begun <= 1):
                noted = noted or time.monotonic()
                if time.monotonic() - noted >= fault.delay and self.job.ranks():
                    return True
            time.sleep(0.005)
        return False

    def last_step(self):
        log = self.folder / "log.json"
        found = re.findall(r'"step": ?(\d+)', log.read_text(errors="replace")) if log.exists() else []
        return int(found[-1]) if found else 0

    def rejoin_if_due(self):
        if self.rejoin_at and time.monotonic() >= self.rejoin_at:
            self.hosts.join(1)
            self.rejoin_at = None

    def strike(self, fault):
        """Causes the fault. Returns the time."""
        ranks = self.job.ranks()
        chosen = sorted(ranks)[fault.rank % len(ranks)] if ranks else None
        if fault.target == "signal":
            self.signalled = time.monotonic()
            self.job.process.send_signal(STOPS[fault.rank])
        elif fault.target == "stop":
            self.hosts.stop(1)
        elif fault.target == "cut":
            self.hosts.cut(1)
            self.rejoin_at = time.monotonic() + fault.away
        for rank, pid in ranks.items() if fault.target in ("rank", "all") else ():
            if fault.target == "all" or rank == chosen:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # the rank has ended in the meantime
        return time.monotonic()

    def recoveries(self):
        return re.findall(r"^zero run: step \d+ done, (.*)$", self.error_text(), re.MULTILINE)

    def await_recovery(self, known):
        while self.job.process.poll() is None and len(self.recoveries()) == known:
            self.rejoin_if_due()
            if time.monotonic() - self.job.began > LIMIT_S:
                return None
            time.sleep(0.01)
        return time.monotonic() if len(self.recoveries()) > known else None

    def run(self):
        """Returns the seconds from each fault to the next step, with the phases that `zero run` prints."""
        times, struck_before = [], False  # whether the last fault hit before the training had recovered
        for number, fault in enumerate(self.schedule.faults):
            if not self.await_moment(fault):
                break
            known, struck = len(self.recoveries()), self.strike(fault)
            if fault.target == "signal":
                break
            following = self.schedule.faults[number + 1:number + 2]
            if following and following[0].moment == "start":
                struck_before = True
                continue
            recovered = self.await_recovery(known)
            if recovered and not struck_before:
                parts = [float(part) for part in re.findall(r"([\d.]+) s", self.recoveries()[-1])]
                times.append((fault, [recovered - struck, *parts[1:]]))
            struck_before = False
        while self.job.process.poll() is None and time.monotonic() - self.job.began < LIMIT_S:
            self.rejoin_if_due()
            time.sleep(0.02)
        if self.signalled:
            self.start_again()
        return times

    def start_again(self):
        """After the end by a signal, starts the same command."""
        code, seconds = self.job.finish(1), time.monotonic() - self.signalled
        CODES[code] = CODES.get(code, 0) + 1
        expect(code in (0, 20, 21), f"exit code {code} after a signal\n{self.error_text()}")
        expect(seconds < STOP_LIMIT_S, f"{seconds:.0f} s from the signal to the end")
        expect(code == 0 or "zero run: stopped by SIG" in self.error_text(), f"no word about the signal\n{self.error_text()}")
        left = self.job.leftovers()
        expect(not left, "left behind by the signal: " + ", ".join(left))
        if self.hosts and self.rejoin_at:
            self.hosts.join(1)
            self.rejoin_at = None
        if code == 0:
            return
        self.job = self.start()
        while self.job.process.poll() is None and time.monotonic() - self.job.began < LIMIT_S:
            time.sleep(0.02)

    def check(self, undisturbed):
        expect(self.job.finish(1) == 0, f"exit code {self.job.code}")
        left = self.job.leftovers()
        expect(not left, "left behind: " + ", ".join(left))
        names = [name for name in os.listdir(self.folder / "saves") if name.startswith((".tmp", ".trash", ".replaced"))]
        expect(not names, f"left in the directory of checkpoints: {names}")
        run = launch.Run(self.folder / "log.json", "")
        expect(run.summary["digest"] == undisturbed.summary["digest"], "other weights than the undisturbed run")
        steps = [step["step"] for step in run.steps]
        expect(steps == sorted(set(steps)) and steps[-1] == STEPS, f"steps in the log: {steps}")
        for step in run.steps:
            right = undisturbed.steps[step["step"] - 1]
            expect(step["loss_bits"] == right["loss_bits"] and step["grad_norm_bits"] == right["grad_norm_bits"],
                   f"another loss or norm in step {step['step']}")
        expect(not re.search(r"\b(is|are) damaged\b", self.error_text()), "a damaged copy or checkpoint was chosen")
        return f"the same bits, on {' and '.join(map(str, sorted(set(self.generations()))))} ranks, {len(steps)} steps in the log, " \
               f"{self.loaded_copies()} copies loaded"

    def loaded_copies(self):
        return len(re.findall(r"^zero: checkpoint: the copy of step \d+ in memory is loaded$", self.error_text(),
                              re.MULTILINE))


def expect(condition, problem):
    if not condition:
        raise launch.Failed(problem)


def run_schedule(schedule, undisturbed):
    with tempfile.TemporaryDirectory() as folder:
        hosts = Hosts(schedule.slots) if len(schedule.slots) > 1 else None
        training = None
        try:
            if hosts:
                hosts.__enter__()
            training = Supervised(schedule, folder, hosts)
            times = training.run()
            return training.check(undisturbed), times
        except launch.Failed as problem:
            training.job.end()
            raise launch.Failed(f"{problem}\n{training.error_text()}") from None
        finally:
            if hosts:
                hosts.__exit__()


def hosts_allowed():
    try:
        with Hosts([1, 1]):
            return True
    except NotAllowed as reason:
        print(f"without hosts of our own: {reason}", flush=True)
        return False


def show_times(times):
    """Prints medians and maxima."""
    for name, targets in (("processes", ("rank", "all")), ("hosts", ("stop", "cut"))):
        rows = [parts for fault, parts in times if fault.target in targets and len(parts) == len(PARTS)]
        if not rows:
            continue
        text = ", ".join(f"{part} {statistics.median(column):.1f} ({max(column):.1f})"
                         for part, column in zip(PARTS, zip(*rows)))
        print(f"{len(rows)} faults of {name}, seconds to the next step, median (longest): {text}", flush=True)


def main():
    undisturbed, times, failures = undisturbed_run(), [], 0
    may_have_hosts = hosts_allowed()
    for number in range(OPTIONS.first, OPTIONS.first + OPTIONS.schedules):
        schedule = draw(OPTIONS.seed, number, may_have_hosts)
        begin = time.monotonic()
        try:
            result, measured = run_schedule(schedule, undisturbed)
            times += measured
        except launch.Failed as problem:
            result, failures = f"FAILED: {problem}", failures + 1
        faults = ", ".join(f"{fault.target} in {fault.moment}" for fault in schedule.faults)
        print(f"schedule {number}: {schedule.text()}: {faults}: {result} "
              f"({time.monotonic() - begin:.1f} s)", flush=True)
    show_times(times)
    print("codes after signals: " + ", ".join(f"{code}: {count}" for code, count in sorted(CODES.items())))
    print(f"{OPTIONS.schedules - failures} of {OPTIONS.schedules} schedules are good")
    sys.exit(failures != 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs=3)
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--not-in-starts", action="store_true",
                        help="since Open MPI 4.1 may miss a rank that is killed while it connects, and wait for a minute")
    OPTIONS = parser.parse_args()
    MPIEXEC, TRAIN_GPT, ZERO = launch.absolute(OPTIONS.programs)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that hosts are removed
    main()
