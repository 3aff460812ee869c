"""Tests copies in memory from Python, under zero run: a rank kills itself after the second copy has begun, so that the
first is complete, and the next start loads a copy, since no checkpoint is on disk. The losses are those of a run without
the failure. A rank that raises an exception is named, and twice at the same step it is a crash loop.

usage: peer_copies_test.py ZERO [the training itself: train FOLDER HOW]
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import warm

STEPS, RANKS, LIMIT_S = 40, 2, 240
CONFIG = {"train_batch_size": 4, "optimizer": {"type": "Adam", "params": {"lr": 0.01}}, "zero_optimization": {"stage": 3},
          "zero_core": {"peer_copies": 1, "peer_copies_every": 3}}


def train(folder, how):
    import torch
    import zerocore
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 4))
    engine, *_ = zerocore.initialize(model=model, config=CONFIG)
    path, state = engine.load_checkpoint(folder)
    generation = int(os.environ.get("ZERO_GENERATION", "x:1").split(":")[1])
    first = state["next"] if path else 0
    begun, lines = 0, []
    for step in range(first, STEPS):
        if how == "raises" and step == 2 and engine.global_rank == 1:
            raise ValueError("no more data")
        torch.manual_seed(1000 * step + int(os.environ["OMPI_COMM_WORLD_RANK"]))
        loss = engine(torch.randn(2, 16)).square().mean()
        engine.backward(loss)
        engine.step()
        lines.append(f"step {step} loss {loss.item().hex()}")
        begun += engine.copy_to_peers(folder, {"next": step + 1})
        if how == "fails" and generation == 1 and begun == 2 and os.environ["OMPI_COMM_WORLD_RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
    if os.environ["OMPI_COMM_WORLD_RANK"] == "0":
        print("\n".join([f"first {first}", *lines]), flush=True)


def run(zero, folder, how, code=0):
    command = [zero, "run", "-n", str(RANKS), "--restarts", "2", *warm.command(sys.executable, dict(os.environ)), __file__, "train",
               str(folder), how]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
    if done.returncode != code:
        sys.exit(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def losses(done):
    return dict(re.findall(r"^step (\d+) loss (\S+)$", done.stdout, re.MULTILINE))


def main(zero):
    with tempfile.TemporaryDirectory() as folder:
        whole = run(zero, pathlib.Path(folder, "whole"), "undisturbed")
        failed = run(zero, pathlib.Path(folder, "failed"), "fails")
        raised = run(zero, pathlib.Path(folder, "raised"), "raises", code=1).stderr
    for text, times in (("zero run: rank 1 ended with code 1, after step 2\n", 2), ("ValueError: no more data", 2),
                        ("no further start: this is a crash loop", 1)):
        if raised.count(text) != times:
            sys.exit(f"expected {times} times: {text}\n{raised}")
    text = failed.stdout + failed.stderr
    if "in memory is loaded" not in failed.stderr or "from the copy of step" not in failed.stderr:
        sys.exit(f"no copy was loaded\n{text}")
    first = int(re.search(r"^first (\d+)$", failed.stdout, re.MULTILINE)[1])
    expected = {step: loss for step, loss in losses(whole).items() if int(step) >= first}
    if first == 0 or losses(failed) != expected:
        sys.exit(f"other losses after step {first}\n{text}\n{whole.stdout}")
    print(f"the same losses from step {first} on")


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(sys.argv[2], sys.argv[3])
    else:
        main(sys.argv[1])
