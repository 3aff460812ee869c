"""Tests the scripts of the pages: `documented_test.py MPIEXEC PYTHON PACKAGE CASE`."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import warm
from python_test import HERE, MPIEXEC, PACKAGE, PYTHON, contains


def extract(page, language, path):
    """Writes the page's first block of the language."""
    subprocess.run([PYTHON, HERE.parents[2] / "tests/readme/extract.py", HERE.parents[2] / f"docs/{page}.md", language, path],
                   check=True)


def tutorial():
    """The program of docs/getting-started.md with its config: one that ends at half of its steps and is started again ends with
    the numbers of one that did not."""
    whole, parts = [], []
    for folder, lines, lengths in ((tempfile.TemporaryDirectory(), whole, ("40",)), (tempfile.TemporaryDirectory(), parts, ("20", "40"))):
        with folder:
            for steps in lengths:
                lines += run_tutorial(folder.name, steps, (PYTHON, "-W", "ignore") if steps == lengths[-1] else warm.command(
                    PYTHON, {**os.environ, "PYTHONPATH": PACKAGE}))
    contains(whole[-1], "step 40 | loss 0.0")
    if parts != whole:
        raise SystemExit(f"{whole} in one go, {parts} after a resume")


def run_tutorial(folder, steps, python):
    """Returns the lines of steps, without their speed."""
    for language, name in (("python", "train.py"), ("json", "ds_config.json")):
        extract("getting-started", language, f"{folder}/{name}")
    script = pathlib.Path(folder, "train.py")
    text = script.read_text()
    contains(text, "global_steps < 40:")
    script.write_text(text.replace("global_steps < 40:", f"global_steps < {steps}:"))
    done = subprocess.run([MPIEXEC, "--oversubscribe", "-n", "2", *python, "train.py"], cwd=folder,
                          capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": PACKAGE})
    if done.returncode or not os.path.isdir(f"{folder}/checkpoints/global_step{steps}"):
        raise SystemExit(done.stdout + done.stderr)
    contains(done.stdout, "zerocore 0", "stage 3 (FULL_SHARD), CPU, ")
    return [line.rpartition(" | ")[0] for line in done.stdout.splitlines() if line.startswith("zero: step ")]


def change_from_fsdp():
    """The two scripts of docs/from-fsdp.md have the same losses."""
    scripts = re.findall(r"^```python\n(.*?)^```", (HERE.parents[2] / "docs/from-fsdp.md").read_text(), re.M | re.S)
    losses = []
    for number, script in enumerate(scripts):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "train.py").write_text(script)
            done = subprocess.run([PYTHON, "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"],
                                  cwd=folder, capture_output=True, text=True, timeout=300,
                                  env={**os.environ, "PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1"})
        losses.append({rank: float(loss) for rank, loss in re.findall(r"rank (\d) loss (\d\.\d{6})", done.stdout)})
        if done.returncode or sorted(losses[-1]) != ["0", "1"]:
            raise SystemExit(f"script {number}: {done.stdout}{done.stderr}")
    fsdp, zerocore = losses
    if any(abs(fsdp[rank] - zerocore[rank]) > 1e-5 for rank in fsdp):
        raise SystemExit(str(losses))


def two_nets():
    """The script of docs/gan.md prints the same at stages 0 and 3, and saves both nets."""
    printed = []
    for stage in ("0", "3"):
        with tempfile.TemporaryDirectory() as folder:
            extract("gan", "python", f"{folder}/gan.py")
            done = subprocess.run([MPIEXEC, "--oversubscribe", "-n", "2", PYTHON, "-W", "ignore", "gan.py", stage], cwd=folder,
                                  capture_output=True, text=True, timeout=300,
                                  env={**os.environ, "PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1"})
            printed.append(re.findall(r"^step .*", done.stdout, re.M))
            saved = [os.path.isdir(f"{folder}/checkpoints/{net}/global_step101") for net in ("generator", "judge")]
            contains(done.stdout, "zero: Sequential 1, step 10 | loss ", "zero: Sequential 2, step 10 | loss ")
            if done.returncode or "engine's loss" in done.stderr or saved != [True, True] or len(printed[-1]) != 3:
                raise SystemExit(done.stdout + done.stderr)
    if printed[0] != printed[1]:
        raise SystemExit(str(printed))


if __name__ == "__main__":
    globals()[sys.argv[4]]()
