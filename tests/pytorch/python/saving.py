"""One rank of a test of the values in checkpoints other than weights: `saving.py CASE [ARGUMENT]...`."""

import argparse
import collections
import datetime
import enum
import os
import pathlib
import random
import subprocess
import sys

import numpy
import torch

import cases
import models
import zerocore
from rank import config, say, train


class Color(enum.Enum):
    RED = 1


def client_states():
    """Returns values that programs store: (value, whether it is restored unchanged)."""
    random.seed(2)
    numpy.random.seed(2)
    torch.manual_seed(2)
    numpy_generator = numpy.random.default_rng(3)
    numpy_generator.random()
    values = {
        "text": "a", "number": 0.5, "infinite": float("inf"), "tuple": (1, (2, "x")), "set": {"b", "a"}, "none": None,
        "bytes": b"xy", "long bytes": bytes(5000), "path": pathlib.Path("/a/b"), "namespace": argparse.Namespace(lr=1e-3),
        "enum": Color.RED, "tensor": torch.arange(6.0).reshape(2, 3), "bf16": torch.ones(3, dtype=torch.bfloat16),
        "array": numpy.arange(4).reshape(2, 2), "scalar": numpy.float32(1.5), "texts": numpy.array(["a", "bcd"]),
        "torch state": torch.get_rng_state(), "numpy state": numpy.random.get_state(), "python state": random.getstate(),
        "ordered": collections.OrderedDict(a=1), "numbers as keys": {1: 2, "$x": 3}, "dollar": {"$tensor": 1},
        "deque": collections.deque([1, 2], 3), "date": datetime.datetime(2020, 1, 2), "complex": 1 + 2j,
        "complex tensor": torch.ones(2, dtype=torch.complex64), "dtype": torch.bfloat16, "device": torch.device("cpu"),
        "empty": torch.empty(0, 3), "number tensor": torch.tensor(3), "large": 2**80, "frozen": frozenset([1]),
        "generator": torch.Generator().manual_seed(3).get_state(), "time": datetime.timedelta(1, 2, 3),
        "parameter": torch.nn.Parameter(torch.ones(2), requires_grad=False), "big endian": numpy.arange(3, dtype=">i4"),
        "ema": torch.arange(5_000_000.0)}
    return values, numpy_generator


def same(here, there):
    if type(here) is not type(there):
        return False
    if isinstance(here, torch.Tensor):
        return here.dtype == there.dtype and torch.equal(here, there)
    if isinstance(here, (numpy.ndarray, numpy.generic)):
        return here.dtype == there.dtype and numpy.array_equal(here, there)
    if isinstance(here, (list, tuple)):
        return len(here) == len(there) and all(map(same, here, there))
    if isinstance(here, dict):
        return here.keys() == there.keys() and all(same(here[key], there[key]) for key in here)
    return here == there


def client_state(folder):
    """All kinds are restored unchanged, from a file without a pickle; a value that cannot be saved is an error that
    names it, and the engine stays usable; if ranks differ, rank 0's value is stored."""
    model, loss_of = models.make("tied")
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    own = {key: value for key, value in config("2").items() if key not in ("optimizer", "scheduler")}
    engine, *_ = zerocore.initialize(model=model, optimizer=optimizer, lr_scheduler=schedule, config=own)
    values, numpy_generator = client_states()
    train(engine, loss_of, 1)
    for wrong, part in ((print, "client_state['a'][0] is a builtins"), (torch.nn.Linear(1, 1), "state_dict()")):
        try:
            engine.save_checkpoint(folder, "wrong", client_state={"a": [wrong]})
        except zerocore.UsageError as error:
            assert part in str(error), error
        else:
            raise AssertionError("it was saved")
    counter, tally = collections.Counter("aab"), collections.defaultdict(int, a=2)
    engine.save_checkpoint(folder, "kinds", client_state={
        **values, "numpy generator": numpy_generator, "counter": counter, "tally": tally,
        "rank": engine.global_rank, f"of {engine.global_rank}": 1})
    random.seed(1)
    numpy.random.seed(1)
    torch.manual_seed(1 + engine.global_rank)
    engine.save_checkpoint(folder, "random", client_state=3)
    drawn = random.random(), numpy.random.rand(), torch.rand(1).item()
    _, loaded = engine.load_checkpoint(folder, "kinds")
    for name, value in values.items():
        assert same(value, loaded.pop(name)), name
    assert loaded.pop("numpy generator").random() == numpy_generator.random()
    assert type(loaded["counter"]) is collections.Counter and type(loaded["tally"]) is dict
    assert loaded == {"counter": counter, "tally": dict(tally), "rank": 0, "of 0": 1}, loaded
    _, loaded = engine.load_checkpoint(folder, "random")
    assert loaded == 3 and drawn == (random.random(), numpy.random.rand(), torch.rand(1).item())
    saved = b"".join(path.read_bytes() for path in pathlib.Path(folder).rglob("*") if path.is_file())
    for word in (b"UEsDB", b"PK\x03\x04", b"\x80\x02", b"cposix", b"ctorch"):
        assert word not in saved[:4096] and (word[:1] == b"\x80" or word not in saved), word
    if engine.global_rank == 0:
        tool = pathlib.Path(zerocore.__file__).parent / "binaries" / "zero"
        text = subprocess.run([tool, "checkpoint", "inspect", folder, "--tag", "kinds"], check=True, capture_output=True,
                              text=True).stdout
        assert "optimizer   AdamW (exp_avg, exp_avg_sq)" in text and "scheduler   LambdaLR\n" in text, text
    say("kept")


def random_at_other_size(folder, saves):
    """With another number of ranks each rank has its own stream, and a notice says so."""
    model, _ = models.make("tied")
    engine, *_ = zerocore.initialize(model=model, config=config("2"))
    if saves == "saves":
        torch.manual_seed(5)  # one stream on all ranks, as scripts seed
        random.seed(5)
        engine.save_checkpoint(folder)
        return
    engine.load_checkpoint(folder)
    drawn = torch.rand(1).item()
    alike = abs(zerocore.ranks().sum(drawn) - drawn * engine.world_size) <= 1e-6
    assert engine.world_size == 1 or not alike, "ranks share one stream"
    own = random.random()
    assert zerocore.ranks().sum(own) == own * engine.world_size
    say("drawn")


def boundaries(steps, passes, load=None, save=None):
    """Trains `passes` micro-batches, `steps` of them in a step, and returns for each whether it ended a step."""
    model, loss_of = models.make("tied")
    engine, *_ = zerocore.initialize(model=model, config=config("2", steps))
    if load:
        engine.load_checkpoint(*load)
    ends = []
    for _ in range(passes):
        ends.append(engine.is_gradient_accumulation_boundary())
        engine.backward(loss_of(engine))
        engine.step()
    if save:
        engine.save_checkpoint(*save)
    engine.destroy()
    return ends


def accumulation(folder):
    """After a load the next micro-batch is the first of its step, with another accumulation and after a save in the
    middle of a step."""
    for steps, passes in ((4, 8), (2, 3), (3, 5)):
        place = folder, f"{steps}-{passes}"
        boundaries(steps, passes, save=place)
        ends = boundaries(3, 6, load=place)
        assert ends == 2 * [False, False, True], (steps, passes, ends)


def tags(folder):
    """A tag becomes text, whatever its type; errors on all ranks leave the engine usable."""
    model, loss_of = models.make("tied")
    engine, *_ = zerocore.initialize(model=model, config=config("3"))
    digests = {}
    for step, tag in enumerate((0, 3, 0.25, True, pathlib.Path("a"), "a b", torch.tensor(4).item()), 1):
        train(engine, loss_of, step)
        for wrong in ("", "epoch/3", "latest", "..", b"\0".decode()):
            try:
                engine.save_checkpoint(folder, wrong)
            except zerocore.Error as error:
                assert "tag" in str(error), error
            else:
                raise AssertionError(f"the tag {wrong!r} was taken")
        engine.save_checkpoint(folder, tag)
        digests[tag] = engine.digest()
        assert os.path.isdir(f"{folder}/{tag}"), tag
    for tag, digest in digests.items():
        path, _ = engine.load_checkpoint(folder, tag)
        assert path == f"{folder}/{tag}" and engine.digest() == digest, tag
    for wrong in ("none", ""):
        try:
            engine.load_checkpoint(folder, wrong)
        except zerocore.Error as error:
            assert "tag" in str(error) or "none" in str(error), error
        else:
            raise AssertionError("it was loaded")
    train(engine, loss_of, engine.global_steps + 1)
    # A second engine, as of a GAN, saves into the same folder and into its own.
    other, *_ = zerocore.initialize(model=models.make("tied")[0], config=config("3"))
    try:
        other.save_checkpoint(folder, "of the other")
    except zerocore.Error as error:
        assert "another engine of this process saves here" in str(error) and "a folder of its own" in str(error), error
    else:
        raise AssertionError("two engines saved into one folder")
    other.save_checkpoint(f"{folder}/other")
    other.load_checkpoint(f"{folder}/other")
    other.load_checkpoint(folder, 4)
    engine.load_checkpoint(folder, 3)
    say("tagged")


if __name__ == "__main__":
    cases.run(globals())
