"""One rank of a test of passes that fail: `failing.py FOLDER`. A training run whose script catches an exception inside of
a pass, and makes the micro-batch again, ends with the bits of a run without the exception."""

import contextlib
import os
import sys
import threading

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import zerocore

STEPS = 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x, fails=None):
        if fails is not None:
            fails()
        return torch.tanh(self.inner(x))


class Net(nn.Module):
    """Raises `error` at the place `trouble`."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(8, 1)
        self.trouble, self.error = None, torch.OutOfMemoryError("out of memory, by hand")
        self.blocks[1].register_forward_hook(self._hook)

    def fail(self, *_):
        raise self.error

    def _hook(self, *_):
        if self.trouble == "module hook":
            self.fail()

    def _fail_again(self):
        """Fails in the second run, which is the recomputation."""
        self._runs += 1
        if self._runs == 2:
            self.fail()

    def forward(self, x):
        self._runs = 0
        x = self.blocks[0](x)
        if self.trouble == "forward":
            self.fail()
        if self.trouble in ("recomputed", "recomputed by a nested backward"):
            x = checkpoint(self.blocks[1], x, self._fail_again, use_reentrant=self.trouble != "recomputed")
        else:
            x = self.blocks[1](x)
        if self.trouble == "tensor hook":
            x.register_hook(self.fail)
        x = self.blocks[2](x)
        if self.trouble == "generator":
            for _ in self._closed(x):
                pass
        return self.head(x)

    def _closed(self, x):
        yield self.blocks[0](x)
        raise GeneratorExit


FORWARD = ("shape", "forward", "module hook", "loss", "generator")
BACKWARD = ("tensor hook", "recomputed", "recomputed by a nested backward", "parameter hook")


def rank():
    return zerocore.ranks().rank


def batch_of(number, dtype=torch.float32):
    return torch.randn(2, 8, generator=torch.Generator().manual_seed(100 * number + rank())).to(dtype)


def start(stage, accumulation, **more):
    torch.manual_seed(1)
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": accumulation, "gradient_clipping": 1.0,
              "zero_optimization": {"stage": stage}, "steps_per_print": 10**9,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}, **more}
    return zerocore.initialize(model=Net(), config=config)[0]


def micro_step(engine, number, trouble=None):
    net = engine.module
    x = batch_of(number, net.head.weight.dtype)
    net.trouble = trouble
    hook = net.blocks[1].inner.weight.register_hook(net.fail) if trouble == "parameter hook" else None
    try:
        loss = engine(x[:, :7] if trouble == "shape" else x).float().pow(2).mean()
        if trouble == "loss":
            net.fail()
        engine.backward(loss)
    finally:
        net.trouble = None
        if hook is not None:
            hook.remove()
    engine.step()


def train(stage, accumulation, trouble=None, at=(), error=None, **more):
    """Makes the micro-batches `at` once more after their failure."""
    engine = start(stage, accumulation, **more)
    if error is not None:
        engine.module.error = error
    number, failures = 0, []
    while engine.global_steps < STEPS:
        fails = number in at and number not in failures
        try:
            micro_step(engine, number, trouble if fails else None)
        except BaseException as raised:  # KeyboardInterrupt is one
            if not fails or not isinstance(raised, (GeneratorExit, type(engine.module.error), RuntimeError)):
                raise
            failures.append(number)
            if trouble in BACKWARD:
                number -= number % accumulation  # the step begins again
            continue
        number += 1
    outcome = engine.digest(), engine.last_step.grad_norm, engine.last_step.loss
    skipped = engine.skipped_steps
    engine.destroy()
    return outcome, skipped, len(failures)


def stages():
    return (2, 3) if zerocore.ranks().size > 1 else (0, 3)


def on_all_ranks():
    for stage in stages():
        for accumulation in (1, 4):
            clean = train(stage, accumulation)[0]
            for trouble in FORWARD + BACKWARD:
                at = (0, 2) if accumulation == 1 else (5,)
                outcome = train(stage, accumulation, trouble, at)
                assert outcome == (clean, 0, len(at)), (stage, accumulation, trouble, outcome, clean)
        at = ("forward", "module hook")[rank() % 2]  # each rank fails at another place
        assert train(stage, 1, at, (0, 1))[0] == train(stage, 1)[0], stage
        for error in (KeyboardInterrupt(), SystemExit(3), ValueError("no more data")):
            outcome = train(stage, 1, "forward", (0,), error=error)
            assert outcome == (train(stage, 1)[0], 0, 1), (stage, error, outcome)


def in_evaluation():
    for stage in stages():
        clean = train(stage, 1)[0]
        for ranks in ((0, 1), (1,)) if stage < 3 or zerocore.ranks().size == 1 else ((0, 1),):
            engine = start(stage, 1)
            for number in range(STEPS):
                micro_step(engine, number)
                engine.eval()
                with torch.no_grad():
                    with contextlib.suppress(RuntimeError):
                        engine(torch.ones(2, 7 if rank() in ranks else 8))
                        assert rank() not in ranks
                    value = engine(torch.ones(2, 8)).sum().item()
                    assert value == engine(torch.ones(2, 8)).sum().item()
                engine.train()
            assert engine.digest() == clean[0], (stage, ranks)
            engine.destroy()


def saved(folder):
    """A checkpoint after a failed pass is that of the last whole step."""
    for stage in stages():
        for trouble in ("forward", "tensor hook"):
            engine = start(stage, 1)
            micro_step(engine, 0)
            before = engine.digest()
            with contextlib.suppress(torch.OutOfMemoryError):
                micro_step(engine, 1, trouble)
            engine.save_checkpoint(folder, tag=f"{stage}-{trouble[:4]}")
            assert engine.digest() == before
            engine.destroy()
            engine = start(stage, 1)
            engine.load_checkpoint(folder, tag=f"{stage}-{trouble[:4]}")
            assert engine.digest() == before and engine.global_steps == 1
            engine.destroy()


def with_a_loss_scale():
    for stage in stages():
        more = {"fp16": {"enabled": True, "initial_scale_power": 4}}
        clean = train(stage, 1, **more)[0]
        for trouble in ("forward", "tensor hook"):
            assert train(stage, 1, trouble, (1,), **more)[0] == clean, (stage, trouble)


def with_two_threads(stage):
    """A second thread's call is refused while a call runs, and harms nothing."""
    engine = start(stage, 1)
    inside, goes_on, refused = threading.Event(), threading.Event(), []

    def hold(*_):
        inside.set()
        goes_on.wait(60)

    hook = engine.module.blocks[1].register_forward_hook(hold)

    def meddle():
        inside.wait(60)
        for call in (lambda: engine(torch.ones(2, 8)), engine.step, engine.digest,
                     lambda: engine.save_checkpoint("/nowhere")):
            try:
                call()
            except zerocore.UsageError as error:
                refused.append(str(error))
        goes_on.set()

    thread = threading.Thread(target=meddle, name="meddler")
    thread.start()
    loss = engine(batch_of(0)).pow(2).mean()
    thread.join()
    hook.remove()
    engine.backward(loss)
    engine.step()
    assert refused and all("on thread meddler during engine.forward on thread MainThread" in text for text in refused), refused
    for number in range(1, STEPS):
        micro_step(engine, number)
    digest = engine.digest()
    engine.destroy()
    return digest


def in_initialize(folder):
    """A monitor's file that cannot be written is an error on each rank, whose exception the script keeps until it ends."""
    file = os.path.join(folder, "file")
    open(file, "w").close()
    try:
        start(2, 1, csv_monitor={"enabled": True, "output_path": file})
    except zerocore.Error as error:
        assert "csv_monitor.output_path" in str(error), error
        return error
    raise AssertionError("a folder below a file was made")


def main(folder):
    kept = in_initialize(folder)  # noqa: F841
    on_all_ranks()
    with_a_loss_scale()
    in_evaluation()
    saved(folder)
    for stage in (0, 3):
        assert with_two_threads(stage) == train(stage, 1)[0][0]
    if rank() == 0:
        print("passes are forgotten", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
