"""Common parts of the campaign's classes: their register, a small training run, its undisturbed result, and the
conditions that must hold after a fault."""

import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile
import threading
import time
import typing

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import launch  # noqa: E402

LIMIT_S = 180  # for programs that end by themselves, on a busy machine and disk
STEPS, SAVE_EVERY = 240, 40
WHOLE = {".lock", "latest"}
OFFLOADED = {"zero_optimization.offload_optimizer.device": "nvme", "zero_core.offload_chunk_bytes": 60000,
             "aio.block_size": 16384}
WITHOUT_URING = pathlib.Path(__file__).parents[1] / "offload" / "without_uring.py"
CONFIG, TOPOLOGY, DISAGREEMENT, MEMORY, SAVE, LOAD = 10, 11, 12, 13, 14, 15
NUMERIC, STALLED, OFFLOAD, STOPPED, NOT_SAVED = 16, 18, 19, 20, 21
# The codes of docs/exit-codes.md, and those that a launcher returns if a signal has ended a rank; 1 may also be the
# launcher's own.
DOCUMENTED = {0, 1, *range(10, 22)} | {128 + number for number in range(1, 65)}
NO_RIGHT = "not tried: this user or machine cannot"
CLASSES = []


@dataclasses.dataclass(frozen=True)
class FaultClass:
    name: str
    weight: int
    test: typing.Callable


def fault_class(name, weight):
    def register(test):
        CLASSES.append(FaultClass(name, weight, test))
        return test
    return register


class Programs:
    def __init__(self, mpiexec, train_gpt, zero, failing_calls):
        self.mpiexec, self.train_gpt, self.zero, self.failing_calls = launch.absolute(
            (mpiexec, train_gpt, zero, failing_calls))
        self.adapter_program = str(pathlib.Path(self.failing_calls).with_name("adapter_program"))
        self.lock, self.references = threading.Lock(), {}

    def reference(self, ranks):
        """Makes the undisturbed run, and its checkpoints of two earlier steps: once, since they are equal at every
        stage."""
        with self.lock:
            if ranks not in self.references:
                self.references[ranks] = Reference(self, ranks)
            return self.references[ranks]


def arguments(log, steps=STEPS, stage=3, more=()):
    return ["--model", "tiny", "--sequence-length", "16", "--threads", "1", "--steps", str(steps),
            *(() if stage is None else ("--stage", str(stage))), "--set", "train_batch_size=12", "--set", "zero_core.gradient_sync=each", "--log-json", str(log),
            *map(str, more)]


def saving(folder):
    return ["--checkpoint", os.path.join(folder, "c"), "--save-every", str(SAVE_EVERY), "--keep", "2"]


def complete_lines(log):
    path = pathlib.Path(log)
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def steps_of(log):
    return {line["step"]: (line["loss_bits"], line["grad_norm_bits"]) for line in complete_lines(log) if "step" in line}


def digest_of(log):
    lines = complete_lines(log)
    return lines[-1]["summary"]["digest"] if lines and "summary" in lines[-1] else None


class Reference:
    def __init__(self, programs, ranks, more=(), stage=3):
        self.holder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.holder.name)
        for name, steps in (("half", STEPS // 2), ("whole", STEPS)):
            log = self.folder / f"{name}.json"
            job = launch.Job(launch.mpirun(programs.mpiexec, ranks, programs.train_gpt,
                                           *arguments(log, steps, stage, [*saving(self.folder), *more])), self.folder)
            if job.finish(LIMIT_S) != 0:
                raise launch.Failed("the undisturbed run failed\n" + job.text())
            if name == "half":
                shutil.copytree(self.folder / "c", self.folder / "checkpoints")
                self.steps = steps_of(log)
        self.steps |= steps_of(log)
        self.digest, self.seconds = digest_of(log), 2 * job.seconds


class Case:
    """One fault, chosen by the class's name, the seed and a number."""

    def __init__(self, programs, folder, random_name):
        self.programs, self.folder = programs, pathlib.Path(folder)
        self.random = random.Random(random_name)
        self.choose_reference()
        self.stage = self.random.randrange(4)
        self.checkpoints = self.folder / "c"
        self.logs, self.said, self.bits_matter = [], "", True

    def choose_reference(self):
        self.ranks = self.random.choice((1, 2, 2, 3))
        self.reference = self.programs.reference(self.ranks)

    def note(self, text):
        """Notes an action, for the report of a failure."""
        self.said += text + "; "

    def with_checkpoints(self):
        """Starts after an earlier run that saved at steps 80 and 120."""
        shutil.copytree(self.reference.folder / "checkpoints", self.checkpoints)

    def command(self, more=(), wrapper=(), stage=None, checkpoint=True, steps=STEPS):
        self.logs.append(self.folder / f"log{len(self.logs)}.json")
        more = [*(saving(self.folder) if checkpoint else []), *more]
        return [*wrapper, self.programs.train_gpt,
                *arguments(self.logs[-1], steps, self.stage if stage is None else stage, more)]

    def failing(self, rule, record=None, rank=None):
        """Returns a wrapper: these system calls fail on one rank, and are recorded on all."""
        rank = self.random.randrange(self.ranks) if rank is None else rank
        script = 'if [ "${OMPI_COMM_WORLD_RANK:-0}" != "$1" ]; then unset ZERO_TEST_CALLS; fi; ' \
                 'export LD_PRELOAD=$2; shift 2; exec "$@"'
        settings = [f"ZERO_TEST_CALLS={rule}"] if rule else []
        settings += [f"ZERO_TEST_RECORD={record}"] if record else []
        self.note(f"{rule} on rank {rank}")
        return ["env", *settings, "sh", "-c", script, "sh", str(rank), self.programs.failing_calls]

    def start(self, *more, environment=None, launcher=(), **options):
        line = launch.mpirun(self.programs.mpiexec, self.ranks, *self.command(more, **options))
        return launch.Job([line[0], *launcher, *line[1:]], self.folder, environment)

    def start_each(self, *commands):
        return launch.Job(launch.mpirun_each(self.programs.mpiexec, *commands), self.folder)

    def require(self, condition, problem, job=None):
        if not condition:
            raise launch.Failed(problem + ("\n" + job.text() if job else ""))

    def expect_any_bits(self):
        """Used if the inputs differ from those of the undisturbed run."""
        self.bits_matter = False

    def wait_for_steps(self, job, count=1):
        deadline = time.monotonic() + LIMIT_S
        while len(steps_of(self.logs[-1])) < count and job.process.poll() is None:
            self.require(time.monotonic() < deadline, "it does not start", job)
            time.sleep(0.005)
        self.require(len(steps_of(self.logs[-1])) >= count, "it has ended already", job)

    def wait_for_ranks(self, job):
        deadline = time.monotonic() + LIMIT_S
        while len(pids := job.ranks()) < self.ranks and job.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return pids

    def end(self, job, codes, *words, limit=LIMIT_S, messages=(0, 1), leftovers=True):
        """Checks that the job ends soon, with one of these codes (None: any but 0), one message with these words, and
        no leftovers."""
        code = job.finish(limit)
        self.require(code != 0 if codes is None else code in codes, f"exit code {code}, not {codes}", job)
        self.require(code < 0 or code in DOCUMENTED, f"exit code {code}, which no page has", job)
        said = "\n".join(job.messages())
        if messages is not None:
            self.require(sum(line.startswith("zero: rank") for line in said.splitlines()) in messages,
                         "more than one last message", job)
        for word in words:
            self.require(re.search(word, said), f"the message does not say {word!r}", job)
        left = job.leftovers() if leftovers else []
        self.require(not left, f"left behind: {left}", job)
        self.check_steps(job)
        return code

    def check_steps(self, job):
        for log in self.logs if self.bits_matter else ():
            for step, bits in steps_of(log).items():
                self.require(self.reference.steps.get(step) == bits, f"step {step} has other bits", job)

    def finishes(self, *more, words=(), **options):
        """Checks that a start with the same command reaches the bits of the undisturbed run and leaves complete
        checkpoints alone."""
        job = self.start(*more, **options)
        self.end(job, (0,), messages=None)
        said = job.text()
        for word in words:
            self.require(re.search(word, said), f"it does not say {word!r}", job)
        self.require(digest_of(self.logs[-1]) == self.reference.digest, "not the bits of the undisturbed run", job)
        if self.checkpoints.exists():
            left = {name for name in os.listdir(self.checkpoints) if not name.startswith(("step-", ".trash-set-aside-"))}
            self.require(left <= WHOLE, f"the next start leaves {left}", job)
        return job


def offloaded(case):
    folder = case.folder / "nvme"
    folder.mkdir(exist_ok=True)
    case.stage = max(case.stage, 1)
    return launch.settings({**OFFLOADED, "zero_optimization.offload_optimizer.nvme_path": folder})
