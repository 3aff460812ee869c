"""Equal bits of GPT-2 with dropout at any number of ranks (zero_core.rank_independent), in a script's own loop and in
Hugging Face's Trainer: `rank_independence_test.py MPIEXEC PYTHON PACKAGE short|whole`."""

import json
import sys
import tempfile

from python_test import HERE, TRAINER, lacks, start_as_deepspeed


def start(ranks, *cells):
    return start_as_deepspeed(ranks, str(HERE / "rank_independent.py"), *cells, timeout=None, imports=TRAINER)


def run(ranks, *cells):
    """Returns the values that rank 0 prints, by cell."""
    done = start(ranks, *cells)
    if done.returncode:
        raise SystemExit(f"{cells} on {ranks} ranks ended with {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}")
    values = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("CELL ")]
    return {each["cell"]: each for each in values}


def require_one_run(*tables):
    """Each table is (kind, dtype, runs, number of different values), with `runs` {ranks: [(name of the run, stage, last
    step)]}. All runs of a table must have the values and the digest of its run "whole". The tables' runs on a number of ranks
    share its processes, since these mostly start; a run with several parts goes on in the order of the first table's ranks."""
    found = [{} for _ in tables]  # {name: (losses of all its parts, the digest of the last)}
    with tempfile.TemporaryDirectory() as folder:
        for ranks in dict.fromkeys(ranks for _, _, runs, _ in tables for ranks in runs):
            cells = [(index, name, f"{kind},{stage},{dtype},{last},{folder}/{kind}-{dtype}-{name}")
                     for index, (kind, dtype, runs, _) in enumerate(tables) for name, stage, last in runs.get(ranks, ())]
            values = run(ranks, *(cell for _, _, cell in cells))
            for index, name, cell in cells:
                losses, _ = found[index].get(name, ([], None))
                found[index][name] = losses + values[cell]["values"], values[cell]["digest"]
    for (kind, dtype, _, different), names in zip(tables, found):
        right = names["whole"]
        if len(set(map(str, right[0]))) != different:
            raise SystemExit(f"{kind} {dtype}: expected {different} different values: {right[0]}")
        wrong = {name: each for name, each in names.items() if each != right}
        if wrong:
            raise SystemExit(f"{kind} {dtype}: {wrong}, and not {right}")


# A run on one rank; runs on more ranks, all stages once; and one that is resumed on other numbers of ranks, twice.
ON_RANKS = {1: [("whole", 0, 8), ("parts", 3, 3)], 4: [("on4", 2, 8), ("parts", 1, 6)], 3: [("on3", 1, 8), ("parts", 2, 8)],
            2: [("on2", 3, 8)]}
TRAINER_ON_RANKS = {1: [("whole", 1, 8)], 4: [("parts", 3, 4)], 2: [("parts", 2, 8)]}
# Groups of four of the six micro-batches continue in the next micro step on 1, 2 and 3 ranks.
GROUPED_ON_RANKS = {1: [("whole", 0, 6), ("parts", 3, 2)], 3: [("on3", 2, 6), ("parts", 1, 4)], 2: [("parts", 3, 6)]}
OTHERS = 8  # models
# Parts of the errors of the cell `refused`.
REFUSED = ("the Trainer has as many micro-batches in each step", "there are 0 engines", "no forward and backward pass",
           "scale_wrt_gas=False", "between forward and backward", "ends a step at micro-batch 1 of the 3",
           "among micro batches, in micro batch 1 of the 3", "among micro batches", "batch_size is 1",
           "11 samples, and one step needs 12", "after all 3 micro batches")


def refused_calls():
    with tempfile.TemporaryDirectory() as folder:
        for cell in run(2, *(f"refused,{stage},fp32,0,{folder}/{stage}" for stage in (2, 3))).values():
            for text, part in zip(cell["values"], REFUSED, strict=True):
                if part not in text:
                    raise SystemExit(f'expected "{part}" in: {text}')


def a_wrong_rank():
    with tempfile.TemporaryDirectory() as folder:
        done = start(3, f"wrong,2,fp32,8,{folder}")
    for part in ("rank 1 (host ", " of step 4 otherwise than other ranks did, first in the gradient of"):
        if done.returncode != 16 or part not in done.stderr:
            raise SystemExit(f'expected code 16 and "{part}", not {done.returncode} and {done.stderr[-6000:]}')


def short():
    require_one_run(
        ("own", "fp32", ON_RANKS, 8), ("grouped", "bf16", GROUPED_ON_RANKS, 6), ("repeated", "fp32", ON_RANKS, 8),
        ("trainer", "fp32", TRAINER_ON_RANKS, 8), ("others", "fp32", {1: [("whole", 0, 3)], 3: [("on3", 3, 3)]}, OTHERS),
        ("twice", "fp32", {1: [("whole", 0, 3)], 3: [("on3", 2, 3)]}, 3))
    a_wrong_rank()
    refused_calls()


def whole():
    for kind, dtype in (("own", "fp32"), ("own", "bf16"), ("own", "fp16"), ("trainer", "fp32"), ("trainer", "bf16")):
        runs = {ranks: [("whole" if (ranks, stage) == (1, 0) else f"ranks{ranks}-stage{stage}", stage, 8)
                        for stage in (0, 1, 2, 3)] for ranks in (4, 3, 2, 1)}
        for ranks, stage, last in ((4, 1, 2), (3, 3, 5), (2, 2, 8)):
            runs[ranks].append(("parts", stage, last))
        require_one_run((kind, dtype, runs, 8))
    require_one_run(("others", "fp32", {1: [("whole", 0, 3)], 2: [("on2", 1, 3)], 4: [("on4", 2, 3)]}, OTHERS))


if not lacks("transformers", "accelerate"):
    {"short": short, "whole": whole}[sys.argv[4]]()
