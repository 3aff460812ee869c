"""Equal bits of GPT-2 with dropout at any number of ranks (zero_core.rank_independent), in a script's own loop and in
Hugging Face's Trainer: `rank_independence_test.py MPIEXEC PYTHON PACKAGE short|whole`."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).parent / "rank_independent.py"
MPIEXEC, PYTHON, PACKAGE = sys.argv[1:4]


def start(ranks, *cells):
    return subprocess.run(
        [MPIEXEC, "--oversubscribe", "-n", str(ranks), PYTHON, "-W", "ignore", "-m", "zerocore.as_deepspeed", str(SCRIPT),
         *cells], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"})


def run(ranks, *cells):
    """Returns the values that rank 0 prints, by cell."""
    done = start(ranks, *cells)
    if done.returncode:
        raise SystemExit(f"{cells} on {ranks} ranks ended with {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}")
    values = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("CELL ")]
    return {each["cell"]: each for each in values}


def cells_of_ranks(kind, dtype, folder, runs):
    """`runs`: [(ranks, [(name of the run, stage, last step)])]. Returns {name: (losses of all its parts, the
    digest of the last)}."""
    found = {}
    for ranks, parts in runs:
        cells = [f"{kind},{stage},{dtype},{last},{folder}/{name}" for name, stage, last in parts]
        values = run(ranks, *cells)
        for (name, *_), cell in zip(parts, cells):
            losses, _ = found.get(name, ([], None))
            found[name] = losses + values[cell]["values"], values[cell]["digest"]
    return found


def require_one_run(kind, dtype, runs, values):
    """All runs must have the values and the digest of the run "whole", whose values must be that many different ones."""
    with tempfile.TemporaryDirectory() as folder:
        found = cells_of_ranks(kind, dtype, folder, runs)
    right = found["whole"]
    if len(set(map(str, right[0]))) != values:
        raise SystemExit(f"{kind} {dtype}: expected {values} different values: {right[0]}")
    wrong = {name: each for name, each in found.items() if each != right}
    if wrong:
        raise SystemExit(f"{kind} {dtype}: {wrong}, and not {right}")


# A run on one rank; runs on more ranks, all stages once; and one that is resumed on other numbers of ranks, twice.
ON_RANKS = [(1, [("whole", 0, 8), ("parts", 3, 3)]), (4, [("on4", 2, 8), ("parts", 1, 6)]), (3, [("on3", 1, 8), ("parts", 2, 8)]),
            (2, [("on2", 3, 8)])]
TRAINER_ON_RANKS = [(1, [("whole", 1, 8)]), (4, [("parts", 3, 4)]), (2, [("parts", 2, 8)])]
# Groups of four of the six micro-batches continue in the next micro step on 1, 2 and 3 ranks.
GROUPED_ON_RANKS = [(1, [("whole", 0, 6), ("parts", 3, 2)]), (3, [("on3", 2, 6), ("parts", 1, 4)]), (2, [("parts", 3, 6)])]
OTHERS = 8  # models
# Parts of the errors of the cell `refused`.
REFUSED = ("the Trainer has as many micro-batches in each step", "there are 0 engines", "no forward and backward pass",
           "scale_wrt_gas=False", "between forward and backward", "ends a step at micro-batch 1 of the 3",
           "among micro batches, in micro batch 1 of the 3", "among micro batches", "batch_size is 1",
           "11 samples, and one step needs 12", "after all 3 micro batches")


def refused_calls():
    for stage in (2, 3):
        with tempfile.TemporaryDirectory() as folder:
            texts, _ = cells_of_ranks("refused", "fp32", folder, [(2, [("", stage, 0)])])[""]
        for text, part in zip(texts, REFUSED, strict=True):
            if part not in text:
                raise SystemExit(f'expected "{part}" in: {text}')


def a_wrong_rank():
    for ranks in (3, 4):
        with tempfile.TemporaryDirectory() as folder:
            done = start(ranks, f"wrong,2,fp32,8,{folder}")
        for part in ("rank 1 (host ", " of step 4 otherwise than other ranks did, first in the gradient of"):
            if done.returncode != 16 or part not in done.stderr:
                raise SystemExit(f'expected code 16 and "{part}", not {done.returncode} and {done.stderr[-6000:]}')


def short():
    require_one_run("own", "fp32", ON_RANKS, 8)
    require_one_run("grouped", "bf16", GROUPED_ON_RANKS, 6)
    require_one_run("repeated", "fp32", ON_RANKS, 8)
    a_wrong_rank()
    require_one_run("trainer", "fp32", TRAINER_ON_RANKS, 8)
    require_one_run("others", "fp32", [(1, [("whole", 0, 3)]), (3, [("on3", 3, 3)])], OTHERS)
    require_one_run("twice", "fp32", [(1, [("whole", 0, 3)]), (3, [("on3", 2, 3)])], 3)
    refused_calls()


def whole():
    for kind, dtype in (("own", "fp32"), ("own", "bf16"), ("own", "fp16"), ("trainer", "fp32"), ("trainer", "bf16")):
        every = [(ranks, [("whole" if (ranks, stage) == (1, 0) else f"ranks{ranks}-stage{stage}", stage, 8)
                          for stage in (0, 1, 2, 3)]) for ranks in (1, 2, 3, 4)]
        resumed = [(ranks, [("parts", stage, last)]) for ranks, stage, last in ((4, 1, 2), (3, 3, 5), (2, 2, 8))]
        require_one_run(kind, dtype, every + resumed, 8)
    require_one_run("others", "fp32", [(1, [("whole", 0, 3)]), (2, [("on2", 1, 3)]), (4, [("on4", 2, 3)])], OTHERS)


for module in ("transformers", "accelerate"):
    if subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode:
        print(f"SKIPPED: {module} is not installed")
        break
else:
    {"short": short, "whole": whole}[sys.argv[4]]()
