"""Hugging Face's trainers and loops over the engine, against one plain process:
`hugging_face_test.py MPIEXEC PYTHON PACKAGE short|whole|ways|packaged|packaged_everywhere`. Cells run one after another in the same processes, and each
kind of cell of the short form by each way to start a script: `python -m zerocore.as_deepspeed`, ZEROCORE_AS_DEEPSPEED=1, and
install() in the script, after its imports. `ways` runs all cells by each way and launcher. `packaged` runs accelerate's own test scripts."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from launch_test import free_port
from python_test import MPIEXEC, PACKAGE, PYTHON, installed_package

HERE = pathlib.Path(__file__).parent
RUN = HERE / "hugging_face" / "run.py"
PACKAGED = HERE / "hugging_face" / "packaged.py"
TRL = ("sft", "dpo", "reward", "grpo")
LOSSES = 1e-4  # relative; under fp32 everything else too
IN_BF16 = {"reward": 4.2e-3}  # the loss is a bf16 number itself: one step of it
REST_IN_BF16 = 5e-3  # norms and means of logits have bf16's own digits

# Each path at least once: on two ranks, and on one.
SHORT = {
    2: ["features:stage=2,schedule=linear", "features:stage=3,bf16=1", "features:stage=1,schedule=linear,lora=1",
        "features:fsdp=2,schedule=linear", "sft:yaml=zero3,bf16=1,lora=1", "sft:yaml=fsdp1", "dpo:yaml=zero2,bf16=1",
        "dpo:stage=3", "dpo:stage=3,lora=1", "reward:yaml=fsdp2,bf16=1", "reward:stage=1,lora=1", "grpo:yaml=zero3,bf16=1",
        "grpo:stage=2", "grpo:stage=3", "grpo:stage=2,lora=1",
        "loop:stage=3", "loop:yaml=zero1,clip=1,bf16=1", "loop:yaml=fsdp2", "loop:yaml=multi_gpu", "interrupted:stage=3,in=shared",
        "given:stage=1", "given:stage=3", "compiled:stage=3"],
    1: ["resumed:stage=2,in=shared", "features:stage=3,schedule=linear,lora=1", "grpo:yaml=zero3,bf16=1,lora=1", "loop:stage=2",
        "given:stage=2"],
}

WAYS = ("module", "variable", "installs")
# In the short form; each launcher's own settings are those of its first cell.
LAUNCHERS = {"module": "accelerate:fsdp1", "variable": "accelerate:fsdp2", "installs": "mpirun"}


def cells_of(way):
    """Returns a way's part of the short form on two ranks: all kinds of cells, and each cell by one way at least."""
    kinds, index = {}, WAYS.index(way)
    for cell in SHORT[2]:
        kinds.setdefault(cell.partition(":")[0], []).append(cell)
    chosen = {cell for cells in kinds.values() for cell in cells[index::len(WAYS)] or [cells[index % len(cells)]]}
    return [cell for cell in SHORT[2] if cell in chosen]


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
    # The ranks' lines may be on one line.
    found = [json.JSONDecoder().raw_decode(text)[0] for text in done.stdout.split("CELL ")[1:]]
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


def settings_of(name, folder):
    """Returns one of TRL's files for accelerate, in fp32."""
    spec = importlib.util.find_spec("trl")
    text = (pathlib.Path(spec.origin).parent / "accelerate_configs" / f"{name}.yaml").read_text()
    path = pathlib.Path(folder, f"launched_{name}.yaml")
    path.write_text(re.sub("mixed_precision:.*", "mixed_precision: 'no'", text))
    return str(path)


def command_of(launcher, way, ranks, folder, script=RUN):
    """Returns the command up to the script's arguments."""
    module = ["-m", "zerocore.as_deepspeed"] if way == "module" else []
    python = [PYTHON, "-W", "ignore", *module, str(script)]
    port = str(free_port())
    if launcher == "mpirun":
        return [MPIEXEC, "--oversubscribe", "-n", str(ranks), *python]
    if launcher == "zero":
        return [str(pathlib.Path(PACKAGE).parent / "bin/zero"), "run", "-n", str(ranks), *python]
    if launcher == "torchrun":
        return [PYTHON, "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", port,
                *module, str(script)]
    return [PYTHON, "-W", "ignore", "-m", "accelerate.commands.launch", "--config_file",
            settings_of(launcher.partition(":")[2], folder), "--num_processes", str(ranks), "--main_process_port", port,
            *(("--module", "zerocore.as_deepspeed") if module else ()), str(script)]


def environment_of(way, package):
    return {"ZEROCORE_AS_DEEPSPEED": "1", **package} if way == "variable" else {"PYTHONPATH": f"{PACKAGE}:{HERE}"}


def run_cells(way, launcher, ranks, cells, plain, folder, package, limit):
    """Returns the differences to the plain process that are too large."""
    if launcher.startswith("accelerate"):
        cells = [f"features:file={launcher.partition(':')[2]},schedule=linear", *cells]
    found = run([*command_of(launcher, way, ranks, folder), f"{folder}/{way}", str(ranks),
                 "installs" if way == "installs" else "engine", *cells], environment_of(way, package), limit)
    wrong = []
    for cell in cells:
        worst = differences(cell, found[cell], plain[key_of(cell)])
        print(cell, f"on {ranks} ranks, {way} by {launcher}", {name: f"{value:.1e}" for name, value in worst.items()})
        wrong += [f"{cell} on {ranks} ranks, {way} by {launcher}: {name} differs by {value:.1e}"
                  for name, value in worst.items() if value > bound(cell, name)]
    return wrong


# Scripts and their settings; the first are the launcher's.
SCRIPTS = ["test_checkpointing:launched", "test_performance:zero1", "test_checkpointing:zero3", "test_script:zero2",
           "test_metrics:zero3", "test_cli:zero1", "test_ds_multiple_model:none", "test_zero3_integration:none", "test_ops:fsdp1"]


def run_packaged(form, package, folder):
    """Runs accelerate's test scripts: each once, or each by each way and launcher with each of TRL's files."""
    if form == "packaged":
        jobs = [("variable", "accelerate:fsdp2", SCRIPTS)]
    else:
        every = [f"{script}:{file}" for script in ("test_performance", "test_checkpointing", "test_script", "test_metrics", "test_cli",
                 "test_ops") for file in ("zero1", "zero2", "zero3", "fsdp1", "fsdp2")]
        jobs = [(way, launcher, [*(SCRIPTS[:1] if "fsdp" in launcher else ()), *SCRIPTS[6:8], *every])
                for way, launcher in EVERY_START]
    for way, launcher, cells in jobs:
        own = f"{folder}/{way}_{launcher.replace(':', '_')}"
        found = run([*command_of(launcher, way, 2, folder, PACKAGED), own, "installs" if way == "installs" else "engine", *cells],
                    environment_of(way, package), 300 if form == "packaged" else 1500)
        print(f"{way} by {launcher}: {len(found)} of {len(cells)} scripts have passed", flush=True)
        if set(found) != set(cells):
            raise SystemExit(f"{way} by {launcher}: nothing was printed by {sorted(set(cells) - set(found))}")


# With one of DeepSpeed's files accelerate's launcher itself looks for DeepSpeed, before a script can install anything.
EVERY_START = [(way, launcher) for way in WAYS
               for launcher in ("torchrun", "accelerate:fsdp1", "accelerate:fsdp2", "accelerate:zero2", "mpirun", "zero")
               if launcher != "accelerate:zero2" or way == "variable"]


def jobs_of(form):
    """Returns (way, launcher, ranks, cells) of each job."""
    if form == "whole":
        return [("module", "mpirun", ranks, cells) for ranks, cells in whole().items()]
    if form == "short":
        return [(way, LAUNCHERS[way], 2, cells_of(way)) for way in WAYS] + [("module", "mpirun", 1, SHORT[1])]
    # DeepSpeed's file of the launcher is in the environment of all cells, and says other things than they do.
    return [(way, launcher, 2, [] if launcher == "accelerate:zero2" else SHORT[2]) for way, launcher in EVERY_START]


def main(form):
    for module in ("transformers", "accelerate", "trl", "peft"):
        if subprocess.run([PYTHON, "-c", f"import importlib.util as u; raise SystemExit(not u.find_spec('{module}'))"]).returncode:
            print(f"SKIPPED: {module} is not installed")
            return
    if form.startswith("packaged"):
        with tempfile.TemporaryDirectory() as folder:
            return run_packaged(form, installed_package(f"{folder}/site"), folder)
    jobs = jobs_of(form)
    limit = 600 if form != "whole" else 6000
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        package = installed_package(f"{folder}/site")
        keys = dict.fromkeys(key_of(cell) for _, _, _, cells in jobs for cell in ["features:schedule=linear", *cells])
        plain = run([PYTHON, "-W", "ignore", str(RUN), f"{folder}/plain", "1", "plain", *keys], {"PYTHONPATH": str(HERE)}, limit)
        for way, launcher, ranks, cells in jobs:
            wrong += run_cells(way, launcher, ranks, cells, plain, folder, package, limit)
    if wrong:
        raise SystemExit("\n".join(wrong))


main(sys.argv[4])
