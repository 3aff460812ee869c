"""One rank of a test of how scripts end: `endings.py CASE [ARGUMENT]...`.

`stops` is about signals, which one rank has; `alone` about a collective call that rank 0 makes by itself."""

import os
import signal
import sys
import time

import torch

import zerocore
from idioms.harness import Net

STEPS = 6


def start(stage, accumulation=1):
    torch.manual_seed(1)
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": accumulation, "gradient_clipping": 1.0,
              "zero_optimization": {"stage": int(stage)}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
    return zerocore.initialize(model=Net(), config=config)[0]


def say(*words):
    # One write, so that lines of several ranks stay whole.
    sys.stdout.write(" ".join(map(str, (f"rank {zerocore.ranks().rank}:", *words))) + "\n")
    sys.stdout.flush()


def micro_step(engine):
    x = torch.randn(2, 9)
    engine.backward(engine(x).pow(2).mean())
    engine.step()


def train(engine, number, at, rank):
    """Runs steps; in one of them a rank gets a signal between forward and backward."""
    for step in range(STEPS):
        x = torch.randn(2, 9)
        loss = engine(x).pow(2).mean()
        if step == at and engine.global_rank == rank:
            os.kill(os.getpid(), number)
        engine.backward(loss)
        engine.step()
        yield step


def stops(how, stage, number, folder):
    """In step 3 only the last rank gets the signal."""
    number = getattr(signal, number)
    if how == "own":
        seen = []
        signal.signal(number, lambda *_: seen.append(1))
    engine = start(stage)
    last = engine.world_size - 1
    if how == "uncaught":
        for _ in train(engine, number, 2, last):
            pass
    if how == "saved":
        try:
            for _ in train(engine, number, 2, last):
                pass
        except KeyboardInterrupt as interrupt:
            say("interrupted after", engine.global_steps, interrupt)
            engine.save_checkpoint(folder)
            raise
    if how == "goes_on":
        try:
            for _ in train(engine, number, 2, last):
                pass
        except KeyboardInterrupt:
            say("interrupted after", engine.global_steps)
        for _ in train(engine, number, STEPS, last):
            pass
        say("went on to", engine.global_steps)
    if how == "asks":
        for _ in train(engine, number, 2, last):
            if engine.stop_requested:
                break
        say("stops after", engine.global_steps)
        engine.save_checkpoint(folder)
    if how == "own":
        for _ in train(engine, number, 2, last):
            pass
        say("has had", len(seen), "signals, at step", engine.global_steps, engine.stop_requested)
    if how == "twice":
        for _ in train(engine, number, 2, last):
            if engine.stop_requested:
                os.kill(os.getpid(), number)
                time.sleep(20)


def before(number):
    """Until an engine trains, signals have Python's effect."""
    zerocore.ranks()
    teacher = zerocore.initialize(model=Net(), config={"train_micro_batch_size_per_gpu": 1})[0]
    try:
        os.kill(os.getpid(), getattr(signal, number))
        time.sleep(5)
    except KeyboardInterrupt:
        say("interrupted at once", teacher.stop_requested)


def worker(stage):
    """The first signal to a forked process ends it."""
    start(stage)
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    say("the worker ended by signal", os.waitpid(child, 0)[1])


CALLS = {
    "save_checkpoint": lambda engine, folder: engine.save_checkpoint(folder),
    "save_16bit_model": lambda engine, folder: engine.save_16bit_model(folder),
    "export_model": lambda engine, folder: engine.export_model(folder),
    "read": lambda engine, folder: engine.read(engine.module.head.weight),
    "full_param": lambda engine, folder: zerocore.safe_get_full_fp32_param(engine.module.head.weight),
    "gathered": lambda engine, folder: zerocore.zero.GatheredParameters(list(engine.module.parameters())).__enter__(),
    "digest": lambda engine, folder: engine.digest(),
    "load_checkpoint": lambda engine, folder: engine.load_checkpoint(folder),
    "step": lambda engine, folder: micro_step(engine),
    "forward": lambda engine, folder: engine(torch.randn(2, 9)),
    "destroy": lambda engine, folder: engine.destroy(),
    "initialize": lambda engine, folder: start(engine.zero_optimization_stage()),
}


def alone(call, stage, then, folder):
    """Rank 0 makes a collective call that the others do not make, as the last call of the script or before more
    steps."""
    engine = start(stage)
    micro_step(engine)
    say("begins", time.time())
    if engine.global_rank == 0:
        CALLS[call](engine, folder)
    if then == "steps":
        for _ in range(3):
            micro_step(engine)
    say("leaves")


def skips(what, stage):
    """The last rank leaves out a call."""
    engine = start(stage)
    mine = engine.global_rank == engine.world_size - 1
    for step in range(4):
        if what == "leaves" and mine and step == 2:
            break
        x = torch.randn(2, 9)
        if what == "batch" and mine and step == 1:
            continue
        loss = engine(x).pow(2).mean()
        if what == "backward" and mine and step == 1:
            continue
        engine.backward(loss)
        if what == "zero_grad" and mine and step == 1:
            engine.zero_grad()
            continue
        engine.step()
    say("leaves")


def by_hand(stage):
    """The ranks differ inside a backward that the script calls itself."""
    engine = start(stage)
    micro_step(engine)
    loss = engine(torch.randn(2, 9)).pow(2).mean()
    if engine.global_rank == 1:
        engine.digest()
    loss.backward()
    engine.step()


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]](*sys.argv[2:])
