"""Tests failures of jobs under `zero run --restarts`: it names each failure, the training continues by itself or ends with
the cause, and no processes or files are left.

usage: restarts.py MPIEXEC TRAIN_GPT ZERO
"""

import json
import os
import pathlib
import re
import shutil
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import launch  # noqa: E402
from multi_node_hosts import Hosts, NotAllowed  # noqa: E402

MPIEXEC, TRAIN_GPT, ZERO = launch.absolute(sys.argv[1:4])
LIMIT_S = 180
ENDLESS = 100_000_000


class Training(launch.Job):
    """A job under `zero run --restarts`: train_gpt, which resumes and saves, or another program."""

    def __init__(self, folder, ranks=3, steps=ENDLESS, options=("--restarts", "5"), keys=None, program=None, hosts=None):
        keys = {"train_batch_size": 12, "steps_per_print": 1, **(keys or {})}
        saves = pathlib.Path(folder, "saves")
        program = program or [TRAIN_GPT, "--model", "tiny", "--sequence-length", "16", "--steps", str(steps), "--threads",
                              "1", "--checkpoint", str(saves), "--save-every", "20", "--keep", "2",
                              *launch.settings(keys)]
        environment = {}
        if hosts:
            command = hosts.zero_run(ZERO, MPIEXEC, *program, options=options)
            environment["OMPI_MCA_plm_rsh_agent"] = str(hosts.folder / "agent")
        else:
            number = [] if "--elastic" in options else ["-n", str(ranks)]
            command = [ZERO, "run", *number, "--launcher", MPIEXEC, *options, *program]
        super().__init__(command, folder, environment)

    def error_text(self):
        return launch.content(self.errors)

    def starts(self):
        return [int(n) for n in re.findall(r"^\S*mpirun -n (\d+)", self.error_text(), re.MULTILINE)]

    def expect(self, condition, problem):
        if not condition:
            self.end()
            raise launch.Failed(f"{problem}\n{self.text()[-6000:]}")

    def until(self, happened, what):
        deadline = time.monotonic() + LIMIT_S
        while not happened():
            self.expect(time.monotonic() < deadline and self.process.poll() is None, f"{what}: not in time")
            time.sleep(0.02)

    def until_step(self, step, starts):
        """Waits for this number of starts, and then until the last start has done the step."""
        self.until(lambda: len(self.starts()) == starts, f"start {starts}")
        before = len(self.printed())
        self.until(lambda: any(int(made) >= step for made in re.findall(r"^step +(\d+)/", self.printed()[before:], re.MULTILINE)),
                   f"step {step} of start {starts}")

    def send(self, number, *ranks):
        pids = self.ranks()
        for rank in ranks or list(pids):
            self.expect(rank in pids, f"rank {rank} has ended, before it was sent {number!r}")
            os.kill(pids[rank], number)

    def stop(self):
        os.kill(self.process.pid, signal.SIGTERM)

    def expect_end(self, code, starts, *patterns):
        got = self.finish(LIMIT_S)
        self.expect(got == code, f"exit code {got}, not {code}")
        self.expect(self.starts() == starts, f"ranks of the starts: {self.starts()}, not {starts}")
        for pattern in patterns:
            self.expect(re.search(pattern, self.error_text(), re.MULTILINE), f"not printed: {pattern}")
        left = self.leftovers()
        self.expect(not left, "left behind: " + ", ".join(left))


def killed_ranks(folder):
    """Kills a rank twice, so that its slot is lost and the batch fits only two ranks. Then kills all ranks."""
    job = Training(folder, 4, options=("--elastic", "1:4"), keys={"train_batch_size": 4})
    job.until_step(25, 1)
    job.send(signal.SIGKILL, 2)
    job.until_step(45, 2)
    job.send(signal.SIGKILL, 2)
    job.until_step(65, 3)
    job.send(signal.SIGKILL)
    job.until_step(85, 4)
    job.stop()
    job.expect_end(20, [4, 4, 2, 2], r"^zero run: rank 2 was ended by signal 9, after step \d+$",
                   r"^zero run: (no step that was reported is lost|\d+ steps? since the checkpoint of step \d+ will be repeated)$",
                   r"^zero run: slot 2 of this machine has failed twice: it is used again only if --min-ranks needs it$",
                   r"^zero run: restart 2 of 10: generation 3, with 2 ranks of 4, from the checkpoint of step \d+$",
                   r"^zero run: step \d+ done, .* after the failure was noticed: end of the job .*, pause .*, start of "
                   r"the ranks .*, load and first step .*$")


def a_rank_that_hangs(folder):
    job = Training(folder, keys={"zero_core.time_limit_seconds": 2})
    job.until_step(25, 1)
    job.send(signal.SIGSTOP, 1)
    job.until_step(45, 2)
    job.stop()
    job.expect_end(20, [3, 3], r"^zero run: rank 1 hangs, or its host does \(code 18\), after step \d+$")


def killed_while_it_loads(folder):
    """A failure before the first step causes a pause."""
    job = Training(folder)
    job.until_step(25, 1)
    job.send(signal.SIGKILL, 0)
    job.until(lambda: len(job.starts()) == 2 and len(job.ranks()) == 3, "the second start")
    job.send(signal.SIGKILL, 1)
    job.until_step(45, 3)
    job.stop()
    job.expect_end(20, [3, 3, 3])


def the_launcher_is_killed(folder):
    job = Training(folder)
    job.until_step(25, 1)
    with open(f"/proc/{job.process.pid}/task/{job.process.pid}/children") as file:
        os.kill(int(file.read().split()[0]), signal.SIGKILL)
    job.until_step(45, 2)
    job.stop()
    job.expect_end(20, [3, 3], r"^zero run: the launcher was ended by signal 9, after step")


def zero_run_is_killed(folder):
    job = Training(folder)
    job.until_step(5, 1)
    job.process.kill()
    job.expect_end(-signal.SIGKILL, [3])


def a_crash_loop(folder):
    """Rank 1 ends in the same way at every start."""
    script = '[ "$OMPI_COMM_WORLD_RANK" = 1 ] && exit 3; exec sleep 60'
    job = Training(folder, program=["sh", "-c", script])
    job.expect_end(3, [3, 3], r"^zero run: (rank 1|a rank) ended with code 3, before the first step$",
                   r"^zero run: no further start: this is a crash loop: the same failure at the same step, twice$")


def a_mistake(folder):
    """An error in the config causes no restart, because it would fail in the same way again."""
    job = Training(folder, keys={"zero_optimization.stage": 7})
    job.expect_end(10, [3], r"^zero run: no further start: another start would fail in the same way$")


def too_few_restarts(folder):
    job = Training(folder, options=("--restarts", "1"))
    for starts, rank in ((1, 0), (2, 1)):
        job.until_step(25 * starts, starts)
        job.send(signal.SIGKILL, rank)
    job.expect_end(137, [3, 3], r"^zero run: no further start: --restarts allows 1 restart$")


def a_slot_that_is_needed(folder):
    job = Training(folder, options=("--restarts", "5"))
    for starts in (1, 2):
        job.until_step(25 * starts, starts)
        job.send(signal.SIGKILL, 1)
    job.until_step(65, 3)
    job.stop()
    job.expect_end(20, [3, 3, 3], r"^zero run: 1 slot that has failed is used again, because --min-ranks is 3$")


def a_batch_that_elasticity_chose(folder):
    """It fits 1, 2 and 4 ranks at the first start. After that the checkpoints keep it, and 3 ranks are enough."""
    keys = {"elasticity.enabled": "true", "elasticity.max_train_batch_size": 12, "elasticity.micro_batch_sizes": "[3]",
            "elasticity.version": 0.1, "elasticity.ignore_non_elastic_batch_info": "true",
            "zero_core.rank_independent": "true"}
    job = Training(folder, options=("--elastic", "1:4"), keys=keys)
    for starts in (1, 2):
        job.until_step(5 + 20 * starts, starts)
        job.send(signal.SIGKILL, 3)
    job.until_step(65, 3)
    job.stop()
    job.expect_end(20, [4, 4, 3])


def what_was_saved_is_gone(folder):
    """The training does not start over in silence, nor go back: whatever is there is less than a start has had."""
    saves = pathlib.Path(folder, "saves")

    def remove_all():
        shutil.rmtree(saves)

    def remove_newest():
        newest = max(saves.glob("step-*"), key=lambda path: int(path.name[5:]))
        shutil.rmtree(newest)

    for take_away in (remove_all, remove_newest):
        job = Training(folder, options=("--restarts", "3"))
        job.until_step(45, 1)
        job.send(signal.SIGSTOP)  # no save goes on
        take_away()
        job.send(signal.SIGKILL)
        job.expect_end(15, [3, 3, 3], r"^zero: rank \d: .*saves: an earlier start of this run has had the checkpoint of step \d+ "
                       r"here, and (there is none now|the newest is now that of step \d+)")
        shutil.rmtree(saves, ignore_errors=True)


def stopped_in_a_pause(folder):
    script = 'kill -KILL $$'
    job = Training(folder, program=["sh", "-c", script])
    job.until(lambda: "pause of 2 seconds" in job.error_text(), "the second pause")
    job.stop()
    job.expect_end(21, [3, 3], r"^zero run: stopped by SIGTERM before the next start$")


def ended(folder):
    """A training that has finished is not restarted."""
    job = Training(folder, steps=25)
    job.expect_end(0, [3])
    steps = sorted(path.name for path in pathlib.Path(folder, "saves").glob("step-*"))
    job.expect(steps == ["step-20", "step-25"], f"saved: {steps}")
    manifest = json.loads(pathlib.Path(folder, "saves", "step-25", "manifest.json").read_text())
    job.expect(manifest["step"] == 25, "another step")


def on_hosts(folder, lose, again, grows=False):
    with Hosts([1, 2]) as hosts:
        growth = [] if grows else ["--no-growth"]
        job = Training(folder, options=("--restarts", "5", "--min-ranks", "1", *growth), hosts=hosts)
        job.until_step(25, 1)
        lose(hosts)
        begin = time.monotonic()
        job.until(lambda: "does not answer" in job.error_text(), "the loss of the host")
        noticed = time.monotonic() - begin
        job.until_step(45, 2)
        job.expect(not hosts.programs(1, TRAIN_GPT), "ranks of the lost host are left")
        again(hosts)
        job.until(lambda: hosts.programs(1, ZERO), "the host's return")
        time.sleep(1)
        if not grows:
            job.send(signal.SIGKILL, 0)
        job.until_step(65, 3)
        job.stop()
        job.expect_end(20, [3, 1, 3], rf"^zero run: host {re.escape(hosts.address(1))} does not answer, after step",
                       rf"^zero run: host {re.escape(hosts.address(1))} answers again: it is used from now on$")
    return f"noticed after {noticed:.1f} s"


def a_host_dies(folder):
    return on_hosts(folder, lambda hosts: hosts.stop(1), lambda hosts: None)


def a_host_falls_silent(folder):
    """The job grows at a save after the host answers again."""
    return on_hosts(folder, lambda hosts: hosts.cut(1), lambda hosts: hosts.join(1), True)


def a_host_that_is_needed(folder):
    """Too few slots are left without it: `zero run` waits until it answers again."""
    with Hosts([1, 2]) as hosts:
        job = Training(folder, options=("--restarts", "5"), hosts=hosts)
        job.until_step(25, 1)
        hosts.stop(1)
        job.until_step(45, 2)
        job.stop()
        job.expect_end(20, [3, 3], r"^zero run: 1 slot is left, and --min-ranks is 3: waiting for lost hosts, at most 10 m")


def hosts_that_blink(folder):
    """A job of a fixed size waits for as many hosts as are gone."""
    with Hosts([1, 1, 1]) as hosts:
        job = Training(folder, options=("--restarts", "5"), hosts=hosts)
        job.until_step(25, 1)
        hosts.cut(1)
        hosts.cut(2)
        job.until(lambda: "waiting for lost hosts" in job.error_text(), "the wait")
        hosts.join(1)
        time.sleep(5)
        hosts.join(2)
        job.until_step(45, 2)
        job.stop()
        # On a busy machine a host that is back may be silent for the time of a lease, which is one more start.
        job.expect_end(20, [3] * (3 if len(job.starts()) > 2 else 2))


def main():
    tests = [killed_ranks, a_rank_that_hangs, the_launcher_is_killed, zero_run_is_killed, a_crash_loop, a_mistake,
             too_few_restarts, a_slot_that_is_needed, a_batch_that_elasticity_chose, what_was_saved_is_gone,
             stopped_in_a_pause, ended]
    try:
        with Hosts([1, 1]):
            tests += [a_host_dies, a_host_falls_silent, a_host_that_is_needed, hosts_that_blink]
    except NotAllowed as reason:
        print(f"skipped: no hosts of our own on this machine: {reason}")
    wanted = sys.argv[4:]
    # Runs only by its name: Open MPI 4.1 may miss a rank that is killed while ranks connect; all then wait for the limit.
    named = [killed_while_it_loads] if wanted else []
    launch.run_all([(test.__name__, test) for test in tests + named if not wanted or test.__name__ in wanted], at_once=2)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that hosts are removed
    main()
