"""Signals to the processes of a running train_gpt: the job ends soon, with the right code and at most one message, and
leaves nothing.

usage: processes.py MPIEXEC TRAIN_GPT
"""

import json
import os
import pathlib
import re
import resource
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import launch  # noqa: E402

MPIEXEC, PROGRAM = launch.absolute(sys.argv[1:3])
LIMIT_S = 15
START_LIMIT_S = 60  # the first step may have thousands of micro steps, on a busy machine
STALLED = 18
BAD_INPUT, STOPPED = 10, 21  # without a checkpoint


class Training(launch.Job):
    """An endless training run that has started its steps."""

    def __init__(self, folder, stage, ranks=3, keys=None, environment=None, launcher_options=(), options=(), ready=5):
        self.log = pathlib.Path(folder) / f"log{time.monotonic_ns()}.json"
        keys = {"train_micro_batch_size_per_gpu": 1, "zero_optimization.stage": stage, **(keys or {})}
        program = [PROGRAM, "--model", "tiny", "--sequence-length", "16", "--steps", "100000000", "--threads", "1",
                   "--log-json", str(self.log), *options, *launch.settings(keys)]
        command = [MPIEXEC, *launcher_options, *launch.mpirun(MPIEXEC, ranks, *program)[1:]]
        super().__init__(command, folder, environment)
        deadline = time.monotonic() + START_LIMIT_S
        while len(self.steps()) < ready or len(self.ranks()) < ranks:
            if time.monotonic() > deadline or self.process.poll() is not None:
                self.end()
                raise launch.Failed("the training does not start\n" + self.text())
            time.sleep(0.02)
        self.pids = self.ranks()

    def lines(self):
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def steps(self):
        return [line["step"] for line in self.lines() if "step" in line]

    def send(self, number, *ranks):
        for rank in ranks:
            os.kill(self.pids[rank], number)

    def expect(self, condition, problem):
        if not condition:
            self.end()
            raise launch.Failed(problem + "\n" + self.text())

    def expect_end(self, codes, message=(), messages=(1,), limit=LIMIT_S, patience=15):
        code = self.finish(limit)
        self.expect(codes(code), f"exit code {code}")
        self.expect(len(self.messages()) in messages, f"{len(self.messages())} messages")
        for part in message:
            self.expect(re.search(part, "\n".join(self.messages())), f"the message does not say {part!r}")
        left = self.leftovers(patience)
        self.expect(not left, "left behind: " + ", ".join(left))


def failed(code):
    return code != 0


def any_code(_):
    """With --enable-recovery mpirun returns 0 in any case."""
    return True


def killed_rank(folder, stage, **options):
    """If the launcher is faster than the other ranks' watch, the message is the launcher's."""
    job = Training(folder, stage, **options)
    job.send(signal.SIGKILL, 1)
    job.expect_end(failed, messages=(0, 1))


def killed_root(folder):
    job = Training(folder, 3)
    job.send(signal.SIGKILL, 0)
    job.expect_end(failed, messages=(0, 1))


def two_killed_ranks(folder):
    job = Training(folder, 3, ranks=4)
    job.send(signal.SIGKILL, 1, 3)
    job.expect_end(failed, messages=(0, 1))


def killed_rank_of_a_patient_launcher(folder, stage, environment=None):
    """With a launcher that does nothing, the others notice, name the rank and its last operation, and end."""
    job = Training(folder, stage, environment=environment, launcher_options=("--enable-recovery",))
    job.send(signal.SIGKILL, 1)
    job.expect_end(any_code, [r"rank 1 \(pid \d+ on host .*\) died", "rank 1 was|last call|in .* of"])


def json_for_schedulers(folder):
    job = Training(folder, 1, environment={"ZERO_ERROR_JSON": "1"}, launcher_options=("--enable-recovery",))
    job.send(signal.SIGKILL, 1)
    job.expect_end(any_code)
    said = [json.loads(line) for message in job.messages() for line in message.splitlines() if line.startswith("{")]
    job.expect(len(said) == 1 and said[0]["zerr"] == "PEER_FAILED" and said[0]["rank"] == 1 and said[0]["exit_code"] == 17
               and said[0]["seen_by"] != 1 and f"(pid {job.pids[1]} on host" in said[0]["message"], f"JSON: {said}")


def crashed_rank(folder):
    """A segmentation fault; the core dump of a deliberate crash is no leftover."""
    job = Training(folder, 2, launcher_options=("--enable-recovery",))

    resource.prlimit(job.pids[2], resource.RLIMIT_CORE, (0, 0))
    job.send(signal.SIGSEGV, 2)
    job.expect_end(any_code, ["rank 2 .* died"])


def killed_launcher(folder):
    job = Training(folder, 3)
    job.process.kill()
    job.expect_end(failed, messages=(0,), patience=10)


def hung_up_launcher(folder):
    """The terminal closes."""
    job = Training(folder, 1)
    job.process.send_signal(signal.SIGHUP)
    job.expect_end(failed, messages=(0, 1))


def stopped_rank(folder, stage, environment=None):
    """The stopped rank is named with the operation that the others wait for; if it runs again, it ends, and writes
    nothing."""
    job = Training(folder, stage, keys={"zero_core.time_limit_seconds": 1}, environment=environment)
    job.send(signal.SIGSTOP, 2)
    begin = time.monotonic()
    job.expect_end(lambda code: code == STALLED, ["waited 1000 ms in|waited 1 s in", "rank 2", "unit|agreement"])
    job.expect(time.monotonic() - begin < 11, "later than the limit and 10 s")


def stopped_root(folder):
    job = Training(folder, 3, keys={"zero_core.time_limit_seconds": 1})
    job.send(signal.SIGSTOP, 0)
    job.expect_end(lambda code: code == STALLED, ["rank 0"])


def asked_rank(folder, number):
    """An orderly stop of all ranks at one step: the summary is written."""
    job = Training(folder, 3)
    job.send(number, 2)
    job.expect_end(lambda code: code == STOPPED, ["asked to stop, and there is no --checkpoint"])
    steps = job.steps()
    job.expect(steps == list(range(1, len(steps) + 1)), "the log has gaps")
    job.expect("summary" in job.lines()[-1], "no summary")


def asked_rank_twice(folder):
    """The second signal does not wait for the step: that rank ends, and the job with it."""
    job = Training(folder, 3, options=("--set", "gradient_accumulation_steps=2000"), ready=1)
    job.send(signal.SIGTERM, 1)
    time.sleep(0.2)
    job.send(signal.SIGTERM, 1)
    job.expect_end(failed, messages=(0, 1))


def shortened_data(folder):
    data = pathlib.Path(folder, "data.txt")
    data.write_text("All is well that ends well. " * 1000)
    job = Training(folder, 1, options=("--data", str(data)))
    os.truncate(data, 5000)
    job.expect_end(lambda code: code == BAD_INPUT, [r"data\.txt: became shorter than the 28000 bytes"])


def output_that_nobody_reads(folder):
    """Without a launcher, since that would end the job: the lines are lost, but training continues."""
    log = pathlib.Path(folder, "log.json")
    job = launch.Job(["bash", "-o", "pipefail", "-c", '"$0" "$@" 2>&1 | true', PROGRAM, "--model", "tiny", "--steps", "20",
                      "--sequence-length", "16", "--threads", "1", "--log-json", str(log)], folder)
    code = job.finish(LIMIT_S)
    if code != 0 or "summary" not in log.read_text():
        raise launch.Failed(f"exit code {code}\n" + job.text())


def asked_launcher(folder, number):
    """Open MPI ends its ranks itself."""
    job = Training(folder, 2)
    job.process.send_signal(number)
    job.expect_end(failed, messages=(0, 1))


TESTS = [
    ("SIGTERM to a rank, twice", asked_rank_twice, {}),  # the longest
    ("kill -9 of a rank, stage 0", killed_rank, {"stage": 0}),
    ("kill -9 of a rank, stage 3", killed_rank, {"stage": 3}),
    ("kill -9 of a rank, over MPI", killed_rank, {"stage": 3, "environment": {"ZERO_TRANSPORT": "mpi"}}),
    ("kill -9 of the root", killed_root, {}),
    ("kill -9 of two ranks", two_killed_ranks, {}),
    ("kill -9 of a rank, patient launcher, stage 3", killed_rank_of_a_patient_launcher, {"stage": 3}),
    ("kill -9 of a rank, patient launcher, stage 1, worker", killed_rank_of_a_patient_launcher,
     {"stage": 1, "environment": {"ZERO_EXECUTOR": "worker"}}),
    ("kill -9 of a rank, patient launcher, over MPI", killed_rank_of_a_patient_launcher,
     {"stage": 3, "environment": {"ZERO_TRANSPORT": "mpi"}}),
    ("kill -9 of a rank, a line of JSON", json_for_schedulers, {}),
    ("segmentation fault of a rank", crashed_rank, {}),
    ("kill -9 of mpirun", killed_launcher, {}),
    ("SIGHUP to mpirun", hung_up_launcher, {}),
    ("SIGSTOP of a rank, stage 0", stopped_rank, {"stage": 0}),
    ("SIGSTOP of a rank, stage 3", stopped_rank, {"stage": 3}),
    ("SIGSTOP of a rank, worker", stopped_rank, {"stage": 3, "environment": {"ZERO_EXECUTOR": "worker"}}),
    ("SIGSTOP of a rank, over MPI", stopped_rank, {"stage": 3, "environment": {"ZERO_TRANSPORT": "mpi"}}),
    ("SIGSTOP of the root", stopped_root, {}),
    ("SIGTERM to a rank", asked_rank, {"number": signal.SIGTERM}),
    ("SIGINT to a rank", asked_rank, {"number": signal.SIGINT}),
    ("data that become shorter", shortened_data, {}),
    ("output that nobody reads", output_that_nobody_reads, {}),
    ("SIGTERM to mpirun", asked_launcher, {"number": signal.SIGTERM}),
]


launch.run_all(((name, lambda folder, test=test, options=options: test(folder, **options))
                for name, test, options in TESTS), at_once=8)
