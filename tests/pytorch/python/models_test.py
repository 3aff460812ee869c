"""Tests adapters of peft, and models next to the one that trains: `models_test.py MPIEXEC PYTHON PACKAGE CASE`."""

import pathlib
import sys
import tempfile

from python_test import PACKAGE, TRAINER, contains, has, lacks, run

# scripts/install_dependencies.sh --torch installs these packages there.
QUANTIZERS = pathlib.Path.home() / ".cache/zerocore/quantizers"


def adapters():
    """peft's, merged and unmerged inside of GatheredParameters."""
    if lacks("transformers", "peft"):
        return
    for ranks in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            if run(ranks, folder, script="adapters.py", imports=TRAINER)[0].count("merged and unmerged") != ranks:
                raise SystemExit(f"{ranks} ranks do not end")
    run(2, "merged", "--", "changes", "18", "--", "servers", script="streams.py")


def train_and_resume(library, parts):
    if lacks("transformers", "peft"):
        return
    if not (QUANTIZERS / library).exists() and not has(library):
        print(f"SKIPPED: {library} not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        for ranks, part in parts:
            out, _ = run(ranks, folder, part, library, script="quantized.py", imports=(library, *TRAINER),
                         environment={"PYTHONPATH": f"{PACKAGE}:{QUANTIZERS}"})
            contains(out, f"{part}: {library}")


def quantized():
    """QLoRA: the losses of one process at every stage, and a checkpoint on another number of ranks."""
    train_and_resume("bitsandbytes", ((2, "train"), (3, "resume")))


def torchao():
    """The same with torchao's classes, which have codes and scales in tensors of their own."""
    train_and_resume("torchao", ((1, "train"), (2, "train"), (3, "resume")))


def share_of_changes():
    """How many bf16 weights a step of AdamW leaves, as docs/pytorch.md has it; prints a table."""
    if lacks("transformers"):
        return
    for kind, least in (("gpt2", 97), ("llama", 98)):
        output = run(2, kind, script="share_of_changes.py")[0]
        print(output)
        if float(output.split("mean")[1].split()[1]) < least:
            raise SystemExit(f"{kind}: less than {least} % of weights stay")


def several_engines():
    """A student next to a frozen teacher and a frozen judge."""
    for ranks in (1, 3):
        contains(run(ranks, script="engines.py")[0], f"three engines on {ranks} ranks")


if __name__ == "__main__":
    globals()[sys.argv[4]]()
