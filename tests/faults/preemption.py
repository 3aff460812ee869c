"""Training runs that get a signal to stop, and checkpoint directories that not every rank sees or may write to.

usage: preemption.py MPIEXEC TRAIN_GPT
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import launch  # noqa: E402

MPIEXEC, PROGRAM = launch.absolute(sys.argv[1:3])
RANKS, LIMIT_S = 2, 60
SAVED, NOT_SAVED = 20, 21


def command(folder, *arguments, steps=100000000, stage=3, checkpoint=True):
    return [PROGRAM, "--model", "tiny", "--sequence-length", "16", "--threads", "1", "--steps", str(steps),
            "--stage", str(stage), "--set", "train_batch_size=4", "--set", "zero_core.gradient_sync=each",
            *(["--checkpoint", os.path.join(folder, "c")] if checkpoint else []), *map(str, arguments)]


def lines(log):
    path = pathlib.Path(log)
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def expect(job, condition, problem):
    if not condition:
        job.end()
        raise launch.Failed(problem + "\n" + job.text())


class Training(launch.Job):
    """A training run that has done a few steps."""

    def __init__(self, folder, *arguments, **options):
        self.log = os.path.join(folder, "log.json")
        super().__init__(launch.mpirun(MPIEXEC, RANKS, *command(folder, "--log-json", self.log, *arguments, **options)),
                         folder)
        deadline = time.monotonic() + LIMIT_S
        while len(lines(self.log)) < 5:
            expect(self, time.monotonic() < deadline and self.process.poll() is None, "the training does not start")
            time.sleep(0.02)

    def expect_code(self, code):
        got = self.finish(LIMIT_S)
        expect(self, got == code, f"exit code {got}, not {code}")


def tags(folder):
    return sorted(name for name in os.listdir(os.path.join(folder, "c")) if name.startswith("step-"))


def saved_and_goes_on(folder, ask, *arguments):
    """One save at one step, code 20; if it is resumed at another stage, it ends as if nothing had happened."""
    job = Training(folder, *arguments)
    ask(job)
    job.expect_code(SAVED)
    done = [line["step"] for line in lines(job.log) if "step" in line]
    tag = f"step-{done[-1]}"
    expect(job, done == list(range(1, done[-1] + 1)), "the log has gaps")
    expect(job, tag in tags(folder), f"{tags(folder)} after step {done[-1]}")
    expect(job, lines(job.log)[-1]["summary"]["checkpoint"] == tag, "the summary names another checkpoint")
    last = done[-1] + 3
    digests = []
    for name, more, stage in (("resumed", (), 1), ("straight", ("--resume", "none", "--overwrite-later"), 3)):
        log = os.path.join(folder, name + ".json")
        again = launch.Job(launch.mpirun(MPIEXEC, RANKS, *command(folder, "--log-json", log, *more, steps=last,
                                                                  stage=stage)), folder)
        expect(again, again.finish(LIMIT_S) == 0, "it does not go on")
        digests.append(lines(log)[-1]["summary"]["digest"])
    expect(again, digests[0] == digests[1], f"not the bits of the uninterrupted run: {digests}")


def rank_asked(number, rank):
    def ask(job):
        os.kill(job.ranks()[rank], number)
    return ask


def launcher_asked(job):
    """mpirun passes SIGUSR2 on to every rank."""
    job.process.send_signal(signal.SIGUSR2)


def asked_twice(job):
    launcher_asked(job)
    time.sleep(0.05)
    launcher_asked(job)


def no_time_left(folder):
    job = Training(folder, "--save-every", "3", "--keep", "2", "--set", "zero_core.preempt_grace_s=1e-9")
    rank_asked(signal.SIGTERM, 1)(job)
    job.expect_code(NOT_SAVED)
    message = "\n".join(job.messages())
    expect(job, "zero_core.preempt_grace_s is 1e-09: nothing saved after step" in message, "no message with numbers")
    expect(job, all(int(tag[5:]) % 3 == 0 for tag in tags(folder)), f"saved nevertheless: {tags(folder)}")


def model_is_left(folder, checkpoint, code):
    """A run that was stopped does not replace a complete model by its half-trained one."""
    model = pathlib.Path(folder, "m")
    model.mkdir()
    (model / "model.safetensors").write_text("of an earlier run")
    job = Training(folder, "--save-model", model, checkpoint=checkpoint)
    rank_asked(signal.SIGTERM, 1)(job)
    job.expect_code(code)
    message = "\n".join(job.messages())
    expect(job, ("there is no --checkpoint: nothing saved after step" in message) != checkpoint, "not what is saved")
    expect(job, f"--save-model {model} is left as it was" in message, "the model is not named")
    expect(job, (model / "model.safetensors").read_text() == "of an earlier run" and len(list(model.iterdir())) == 1,
           "a model was written")


def directory_of_one_rank(folder):
    """Rank 1 has another file system in the directory's place."""
    os.mkdir(os.path.join(folder, "c"))
    plain = command(folder, steps=3)
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', os.path.join(folder, "c"), *plain]
    job = launch.Job(launch.mpirun_each(MPIEXEC, plain, hidden), folder)
    code = job.finish(LIMIT_S)
    message = "\n".join(job.messages())
    expect(job, code == 11, f"exit code {code}, not 11")
    expect(job, f"rank 1: host {os.uname().nodename} does not see what rank 0 wrote to" in message, "the host is not named")
    expect(job, not [name for name in os.listdir(os.path.join(folder, "c")) if name != ".lock"], "something is left")
    # A checkpoint that one rank does not see is not taken for a damaged one.
    first = launch.Job(launch.mpirun(MPIEXEC, RANKS, *plain), folder)
    expect(first, first.finish(LIMIT_S) == 0, "the first run failed")
    job = launch.Job(launch.mpirun_each(MPIEXEC, plain, hidden), folder)
    code = job.finish(LIMIT_S)
    expect(job, code == 11 and "does not see the checkpoint step-3" in "\n".join(job.messages()), f"exit code {code}")


def read_only_directory(folder):
    directory = os.path.join(folder, "c")
    os.mkdir(directory)
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    job = launch.Job(["unshare", "--mount", "sh", "-c", script, directory,
                      *launch.mpirun(MPIEXEC, RANKS, *command(folder, "--log-json", os.path.join(folder, "l"), steps=3))],
                     folder)
    code = job.finish(LIMIT_S)
    expect(job, code == 14 and "Read-only file system" in "\n".join(job.messages()), f"exit code {code}")
    expect(job, not lines(os.path.join(folder, "l")), "found out after the first step")


def node_local_storage(folder):
    several = {"ZERO_TEST_NODES": "0,1"}
    for environment, expected in ((None, 0), (several, 10)):
        job = launch.Job(launch.mpirun(MPIEXEC, RANKS, *command(
            folder, "--set", "checkpoint.use_node_local_storage=true", steps=2)), folder, environment)
        code = job.finish(LIMIT_S)
        expect(job, code == expected, f"exit code {code}, not {expected}")
    expect(job, "checkpoint.use_node_local_storage: " in "\n".join(job.messages()), "the key is not named")


def slurm_sample(folder):
    """The batch script, with Slurm's signal and a scontrol that records its arguments."""
    tools = pathlib.Path(folder, "tools")
    tools.mkdir()
    called, log = pathlib.Path(folder, "called"), os.path.join(folder, "log.json")
    (tools / "scontrol").write_text(f'#!/bin/sh\necho "$@" > {called}\n')
    (tools / "mpirun").write_text(f'#!/bin/sh\nexec {MPIEXEC} -n {RANKS} --oversubscribe "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o700)
    root = pathlib.Path(__file__).parents[2]
    options = [*command(folder)[1:-2], "--log-json", log]  # it names the checkpoints itself
    job = launch.Job(["bash", str(root / "examples/slurm/train_mpirun.sbatch"), *options], folder, {
        "PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "4711", "ZERO_PROGRAM": PROGRAM,
        "ZERO_CONFIG": str(root / "examples/configs/zero3.json"), "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none", "ZERO_CHECKPOINTS": os.path.join(folder, "c")})
    deadline = time.monotonic() + LIMIT_S
    while len(lines(log)) < 5:
        expect(job, time.monotonic() < deadline and job.process.poll() is None, "the training does not start")
        time.sleep(0.02)
    job.process.send_signal(signal.SIGUSR2)
    code = job.finish(LIMIT_S)
    expect(job, code == 0 and called.read_text() == "requeue 4711\n", f"exit code {code}, no requeue")
    expect(job, tags(folder), "nothing saved")


def by_the_clock(folder):
    job = launch.Job(launch.mpirun(MPIEXEC, RANKS, *command(folder, "--save-minutes", "1e-9", "--keep", "9", steps=4)),
                     folder)
    expect(job, job.finish(LIMIT_S) == 0, "it failed")
    expect(job, tags(folder) == ["step-1", "step-2", "step-3", "step-4"], f"saved {tags(folder)}")


def has_mount_namespaces():
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", folder],
                              stderr=subprocess.DEVNULL).returncode == 0


TESTS = [
    ("SIGTERM to a rank", saved_and_goes_on, (rank_asked(signal.SIGTERM, 1),)),
    ("SIGUSR2 to mpirun", saved_and_goes_on, (launcher_asked,)),
    ("SIGUSR2 to mpirun, twice, with saves in the background", saved_and_goes_on,
     (asked_twice, "--save-every", "2", "--keep", "2", "--set", "checkpoint.writer.decoupled=true")),
    ("no time left for a save", no_time_left, ()),
    ("SIGTERM without --checkpoint", model_is_left, (False, NOT_SAVED)),
    ("SIGTERM with --save-model", model_is_left, (True, SAVED)),
    ("a node's own storage", node_local_storage, ()),
    ("saves by the clock", by_the_clock, ()),
    ("the sample for Slurm", slurm_sample, ()),
]
ISOLATED = [
    ("a directory that one rank does not see", directory_of_one_rank, ()),
    ("a read-only directory", read_only_directory, ()),
]


def main():
    tests = TESTS
    if has_mount_namespaces():
        tests = ISOLATED + TESTS  # the longest first
    else:
        print("not tried, there are no mount namespaces: " + "; ".join(name for name, *_ in ISOLATED))
    launch.run_all(((name, lambda folder, test=test, rest=rest: test(folder, *rest)) for name, test, rest in tests),
                   at_once=6)


main()
