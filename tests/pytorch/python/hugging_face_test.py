"""Hugging Face's trainers and loops over the engine, against one plain process:
`hugging_face_test.py MPIEXEC PYTHON PACKAGE short|whole`. Cells run one after another in the same processes."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
RUN = HERE / "hugging_face" / "run.py"
TRL = ("sft", "dpo", "reward", "grpo")
LOSSES = 1e-4  # relative; under fp32 everything else too
IN_BF16 = {"reward": 4.2e-3}  # the loss is a bf16 number itself: one step of it
REST_IN_BF16 = 5e-3  # norms and means of logits have bf16's own digits

# Each path at least once: on two ranks, and on one.
SHORT = {
    2: ["features:stage=2,schedule=linear", "features:stage=3,bf16=1", "features:stage=1,schedule=linear,lora=1",
        "features:fsdp=2,schedule=linear", "sft:yaml=zero3,bf16=1,lora=1", "sft:yaml=fsdp1", "dpo:yaml=zero2,bf16=1",
        "dpo:stage=3,lora=1", "reward:yaml=fsdp2,bf16=1", "reward:stage=1,lora=1", "grpo:yaml=zero3,bf16=1", "grpo:stage=2,lora=1",
        "loop:stage=3", "loop:yaml=zero1,clip=1,bf16=1", "loop:yaml=fsdp2", "loop:yaml=multi_gpu", "interrupted:stage=3,in=shared",
        "given:stage=1", "given:stage=3"],
    1: ["resumed:stage=2,in=shared", "features:stage=3,schedule=linear,lora=1", "grpo:yaml=zero3,bf16=1,lora=1", "loop:stage=2",
        "given:stage=2"],
}


def whole():
    cells = []
    for more in ("", ",bf16=1"):
        for stage in (1, 2, 3):
            cells += [f"features:stage={stage}{more}", f"features:stage={stage},schedule=linear,lora=1{more}",
                      f"loop:stage={stage}{more}"]
            cells += [] if more else [f"given:stage={stage}"]
            cells += [f"{kind}:stage={stage}{lora}{more}" for kind in TRL for lora in ("", ",lora=1")]
        for file in ("zero1", "zero2", "zero3", "fsdp1", "fsdp2"):
            cells += [f"{kind}:yaml={file}{lora}{more}" for kind in TRL for lora in ("", ",lora=1")]
            cells += [f"loop:yaml={file}{',clip=1' if 'zero' in file else ''}{more}"]
        cells += [f"features:fsdp={version}{more}" for version in (1, 2)] + [f"loop:yaml=multi_gpu{more}"]
    return {2: cells + ["interrupted:stage=2,in=shared", "interrupted:stage=3,bf16=1,in=shared16"],
            1: ["resumed:stage=3,in=shared", "resumed:stage=1,bf16=1,in=shared16", "interrupted:stage=3,in=other"] + cells}


def key_of(cell):
    """Returns a plain process's values of a cell."""
    kind, _, options = cell.partition(":")
    kept = [each for each in options.split(",") if each.split("=")[0] in ("bf16", "lora", "schedule", "clip")]
    return f"{'resumed' if kind == 'interrupted' else kind}:{','.join(sorted(kept))}"


def numbers(value):
    if isinstance(value, list):
        return [number for each in value for number in numbers(each)]
    return [value] if isinstance(value, (int, float)) else []


def run(command, environment, timeout):
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env={
        **os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **environment})
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "it/s" not in line and "examples/s" not in line]
        raise SystemExit(f"{command[-12:]} ended with {done.returncode}\n{done.stdout[-2000:]}\n" + "\n".join(errors[-60:]))
    found = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("CELL ")]
    return {each.pop("cell"): each for each in found}


def differences(cell, found, plain):
    """Returns the largest difference to the plain process, for each value, until the end of the shorter run."""
    worst = {}
    for name, right in plain.items():
        here, there = numbers(found.get(name)), numbers(right)
        if cell.startswith("interrupted:"):
            there = there[:len(here)]
        if name != "seconds":
            worst[name] = max((abs(a - b) / max(1, abs(b)) for a, b in zip(here, there)), default=0)
            if len(here) != len(there) or not here and there:
                worst[name] = float("inf")
    return worst


def bound(cell, name):
    if "bf16=1" not in cell:
        return LOSSES
    return IN_BF16.get(cell.partition(":")[0], LOSSES) if name in ("losses", "again", "evaluated", "best") else REST_IN_BF16


def main(mpiexec, python, package, form):
    for module in ("transformers", "accelerate", "trl", "peft"):
        if subprocess.run([python, "-c", f"import importlib.util as u; raise SystemExit(not u.find_spec('{module}'))"]).returncode:
            print(f"SKIPPED: {module} is not installed")
            return
    by_ranks = SHORT if form == "short" else whole()
    limit = 300 if form == "short" else 6000
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        keys = dict.fromkeys(key_of(cell) for cells in by_ranks.values() for cell in cells)
        plain = run([python, "-W", "ignore", str(RUN), f"{folder}/plain", "1", "plain", *keys], {"PYTHONPATH": str(HERE)}, limit)
        for ranks, cells in by_ranks.items():
            found = run([mpiexec, "--oversubscribe", "-n", str(ranks), python, "-W", "ignore", "-m", "zerocore.as_deepspeed",
                         str(RUN), folder, str(ranks), "engine", *cells], {"PYTHONPATH": f"{package}:{HERE}"}, limit)
            for cell in cells:
                worst = differences(cell, found[cell], plain[key_of(cell)])
                print(cell, f"on {ranks} ranks", {name: f"{value:.1e}" for name, value in worst.items()})
                wrong += [f"{cell} on {ranks} ranks: {name} differs by {value:.1e}" for name, value in worst.items()
                          if value > bound(cell, name)]
    if wrong:
        raise SystemExit("\n".join(wrong))


main(*sys.argv[1:])
