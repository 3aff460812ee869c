"""Draws the losses of a run on 8 ranks, of one that loses ranks at random until 3 are left, and of one on 1 rank, by
`zero compare`. All three must have equal bits: zero_core.rank_independent is on.

usage: loss_picture.py MPIEXEC TRAIN_GPT ZERO PICTURE.svg [SEED]
"""

import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import restarts
from restarts import launch

PICTURE, SEED = pathlib.Path(sys.argv[4]).absolute(), sys.argv[5] if len(sys.argv) > 5 else "1"
STEPS, LIMIT_S = 120, 600
MOST, LEAST = 8, 3


def program(folder, name):
    keys = {"train_batch_size": 48, "train_micro_batch_size_per_gpu": 2, "zero_optimization.stage": 3,
            "zero_core.rank_independent": "true"}
    return [restarts.TRAIN_GPT, "--model", "tiny", "--sequence-length", "16", "--steps", str(STEPS), "--threads", "1",
            "--log-json", f"{folder}/{name}", "--checkpoint", f"{folder}/saves of {name}", "--save-every", "5",
            *launch.settings(keys)]


def run(folder, name, ranks):
    job = launch.Job(launch.mpirun(restarts.MPIEXEC, ranks, *program(folder, name)), folder)
    if job.finish(LIMIT_S) != 0:
        raise launch.Failed(job.text())


def run_that_loses_ranks(folder, name):
    """A slot is lost when the rank on it is killed for the second time."""
    chance = random.Random(SEED)
    job = restarts.Training(folder, options=("--elastic", f"{LEAST}:{MOST}", "--restarts", "100"),
                            program=program(folder, name))
    starts, step = 0, 0
    for left in range(MOST, LEAST, -1):
        rank = chance.randrange(left)
        for _ in range(2):
            starts, step = starts + 1, step + chance.randint(3, 10)
            job.until_step(step, starts)
            job.send(signal.SIGKILL, rank)
    code = job.finish(LIMIT_S)
    if code != 0 or job.starts()[-1] != LEAST:
        raise launch.Failed(f"code {code}, ranks of the starts {job.starts()}\n{job.text()}")
    print("ranks of the starts:", *job.starts())


def main():
    with tempfile.TemporaryDirectory() as folder:
        names = [f"{MOST} ranks", f"{MOST} to {LEAST} ranks", "1 rank"]
        run(folder, names[0], MOST)
        run_that_loses_ranks(folder, names[1])
        run(folder, names[2], 1)
        compare = subprocess.run([restarts.ZERO, "compare", *names, "--report", "report"], cwd=folder, text=True,
                                 stdout=subprocess.PIPE)
        print(re.sub(r"(?m)^$\n", "", compare.stdout))
        if compare.returncode != 0:
            raise launch.Failed(f"zero compare ended with {compare.returncode}")
        shutil.copyfile(f"{folder}/report/loss.svg", PICTURE)


main()
