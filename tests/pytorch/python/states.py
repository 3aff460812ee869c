"""One rank of a test that nothing of a model's state is lost: `states.py FOLDER CASE...`."""

import collections
import copy
import gc
import os
import pathlib
import resource
import sys

import torch
from torch import nn

import zerocore
from rank import say
from zerocore.checkpoints import read_weights

STAGES = (0, 2, 3)


def can_copy(dtype):
    try:
        torch.empty(2, dtype=dtype).clone()
    except (RuntimeError, NotImplementedError):
        return False
    return not str(dtype).startswith("torch.bits")


# Every dtype of which torch can copy a tensor; safetensors files cannot hold all of them.
DTYPES = sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype) and can_copy(value)}, key=str)
HALVES = (torch.float16, torch.bfloat16)  # read_weights() returns them as fp32
UNNAMED = [dtype for dtype in DTYPES if zerocore._native.file_dtype(dtype) is None]
EXTRA = {"number": 3, "counter": collections.Counter("aab"), "size": torch.Size([2, 3]), "ordered": collections.OrderedDict(a=1),
         "bytes": b"\x00" * 3000, "tensor": torch.arange(6).view(2, 3), "set": {1, 2}, "dtype": torch.float16,
         "wide": torch.ones(2, dtype=torch.complex128), "sparse": torch.eye(3).to_sparse(), "text": "a"}


def config(stage, **more):
    return {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}, "steps_per_print": 10**9,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}, **more}


def bits_as(dtype, shape, seed):
    """Returns a tensor whose bits depend on the seed; 0 and 1 for bool."""
    count = torch.empty(shape, dtype=dtype).nbytes
    values = torch.randint(0, 2 if dtype == torch.bool else 256, (count,), dtype=torch.uint8,
                           generator=torch.Generator().manual_seed(seed))
    return values.view(dtype).view(shape) if count else torch.empty(shape, dtype=dtype)


class Extra(nn.Module):
    """A module with a state of its own, as TransformerEngine's."""

    def __init__(self, state):
        super().__init__()
        self.state = state

    def get_extra_state(self):
        return self.state

    def set_extra_state(self, state):
        self.state = state


class Everything(nn.Module):
    """Buffers of all dtypes, 0-dim and empty ones, shared and tied ones, frozen parameters that are no floats, and
    extra states."""

    def __init__(self, seed, dtypes):
        super().__init__()
        for place, dtype in enumerate(dtypes):
            name = str(dtype).removeprefix("torch.")
            self.register_buffer(f"of_{name}", bits_as(dtype, (3, 2), seed + place))
            self.register_buffer(f"one_{name}", bits_as(dtype, (1,), seed + 50 + place).view(()))
            self.register_buffer(f"none_{name}", torch.empty((0, 2), dtype=dtype))
        self.register_buffer("mask", torch.full((3,), -torch.inf))
        self.register_buffer("shared", bits_as(torch.float32, (4,), seed))
        self.register_buffer("again", self.shared)
        self.register_buffer("view_of_shared", self.shared.detach())
        self.register_buffer("left_out", torch.ones(2), persistent=False)
        self.quantized = nn.Parameter(bits_as(torch.int8, (5,), seed), requires_grad=False)
        self.flags = nn.Parameter(bits_as(torch.bool, (5,), seed), requires_grad=False)
        self.phases = nn.Parameter(bits_as(torch.complex64, (2,), seed), requires_grad=False)
        self.empty = nn.Parameter(torch.empty(0, dtype=torch.int32), requires_grad=False)
        self.coded = nn.Parameter(torch.tensor([float("nan"), 1.0]), requires_grad=False)
        self.coded.zerocore_bytes = True
        self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.blocks[1].weight = self.blocks[0].weight
        self.blocks[1].register_buffer("table", self.shared)
        self.extra = Extra(EXTRA if seed == 0 else {"of": seed})

    def forward(self, x):
        for block in self.blocks:
            x = torch.tanh(block(x))
        return x


def raw(value):
    if not isinstance(value, torch.Tensor):
        return repr(value)
    flat = value.detach().cpu().contiguous().view(-1)
    return value.dtype, tuple(value.shape), flat.view(torch.uint8).tolist() if flat.numel() else []


def differing(there, expected, only=lambda value: True):
    """Names that one of two states lacks, or has with other bits."""
    there, expected = ({name: value for name, value in state.items() if only(value)} for state in (there, expected))
    return sorted(name for name in {*there, *expected}
                  if name not in there or name not in expected or raw(there[name]) != raw(expected[name]))


def start(stage, seed, dtypes=DTYPES):
    torch.manual_seed(seed)
    model = Everything(seed, dtypes)
    return zerocore.initialize(model=model, config=config(stage))[0], model


def check(what, names):
    assert not names, f"{what}: {names}"


def dtypes(folder):
    """Ranks start with every bit of rank 0's state_dict(), and each way to save and load keeps them."""
    for stage in STAGES:
        rank = zerocore.ranks().rank
        engine, model = start(stage, seed=rank)
        torch.manual_seed(0)
        expected = Everything(0, DTYPES).state_dict()
        check(f"stage {stage}, at start", differing(engine.module_state_dict(), expected))
        assert model.again is model.shared
        with torch.no_grad():
            model.shared.add_(1)
        engine.backward(engine(torch.ones(2, 4)).sum())
        engine.step()
        expected = copy.deepcopy(engine.module_state_dict())
        assert torch.equal(expected["blocks.1.table"], expected["shared"])
        check("a view of a shared buffer", differing({"": expected["view_of_shared"]}, {"": expected["shared"]}))
        place = f"{folder}/{stage}"
        engine.save_checkpoint(pathlib.Path(place), "a")
        engine.save_16bit_model(place)
        refused("which safetensors files cannot hold", lambda: engine.export_model(place))
        engine.destroy()
        zerocore.ranks().sum(0)  # rank 0 has written
        plain = Everything(5, DTYPES)
        plain.load_state_dict(torch.load(f"{place}/pytorch_model.bin", weights_only=False))
        check(f"stage {stage}, save_16bit_model", differing(plain.state_dict(), expected))
        whole = read_weights(place)
        check(f"stage {stage}, read_weights", [
            name for name, value in expected.items() if isinstance(value, torch.Tensor) and (
                name not in whole or value.dtype not in HALVES and raw(value) != raw(whole[name]))])
        other, _ = start(3 - stage if stage != 2 else 0, seed=7 + rank)
        other.load_checkpoint(place)
        check(f"stage {stage}, load_checkpoint", differing(other.module_state_dict(), expected))
        other.destroy()
        weights(stage, place + "-weights")
    say("kept")


def weights(stage, place):
    """Plain torch and load_weights() load what safetensors can hold and export_model() has written."""
    named = [dtype for dtype in DTYPES if dtype not in UNNAMED]
    engine, _ = start(stage, seed=0, dtypes=named)
    expected = copy.deepcopy(engine.module_state_dict())
    engine.export_model(place)
    engine.destroy()
    from safetensors.torch import load_file
    check(f"stage {stage}, export_model", differing(load_file(f"{place}/model.safetensors"), expected, only=torch.is_tensor))
    other, _ = start(stage, seed=7, dtypes=named)
    other.load_weights(f"{place}/model.safetensors")
    check(f"stage {stage}, load_weights", differing(other.module_state_dict(), expected, only=torch.is_tensor))
    other.destroy()


def refused(part, call):
    try:
        call()
    except zerocore.Error as error:
        assert part in str(error), error
    else:
        raise AssertionError(f"it was not refused, and not by {part!r}")


class Net(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.norm = nn.BatchNorm1d(9)
        self.blocks = nn.ModuleList([nn.Linear(9, 9) for _ in range(2)])
        self.head = nn.Linear(9, classes)

    def forward(self, x):
        x = self.norm(x)
        for block in self.blocks:
            x = torch.tanh(block(x))
        return self.head(x)


def trained(model, stage, steps=2, **more):
    engine = zerocore.initialize(model=model, config=config(stage, **more))[0]
    for step in range(steps):
        rank = torch.Generator().manual_seed(10 * step + engine.global_rank)
        engine.backward(engine(torch.randn(4, 9, generator=rank)).pow(2).mean())
        engine.step()
    return engine


def ends(folder):
    """After the end of an engine the model is plain, with its values at stages 0 to 2. Where they are sharded, it keeps
    the engine, from which the next one takes them; after destroy() every use says what to do."""
    sharded = zerocore.ranks().size > 1
    for stage in STAGES:
        for way in ("destroyed", "collected", "held"):
            torch.manual_seed(1)
            model = Net()
            engine = trained(model, stage)
            expected = copy.deepcopy(engine.module_state_dict())
            engine.backward(engine(torch.ones(4, 9)).mean())  # a step that nobody ends
            if way == "destroyed":
                engine.destroy()
                refused("destroyed", lambda: engine(torch.ones(4, 9)))
            held = engine if way == "held" else None
            del engine
            gc.collect()
            if stage == 3 and sharded and way == "destroyed":
                gone(model)
                continue
            if way != "held" and not (stage == 3 and sharded):
                state = {name: value for name, value in model.state_dict().items() if "norm" not in name}
                check(f"stage {stage}, {way}", differing(state, {name: expected[name] for name in state}))
                model(torch.ones(4, 9)).sum().backward()
                assert all(each.grad is not None for each in model.parameters())
                model.zero_grad()
                assert not hasattr(model.head.weight, "ds_id") and "forward" not in vars(model) or way == "collected"
                copy.deepcopy(model)(torch.ones(4, 9))
            model.eval()(torch.ones(4, 9))
            again = trained(model.train(), (stage + 2) % 4, steps=0)
            state = {name: value for name, value in again.module_state_dict().items() if "norm" not in name}
            check(f"stage {stage}, {way}, again", differing(state, {name: expected[name] for name in state}))
            if held is not None:
                refused("given to zerocore.initialize() again", held.digest)
            trained(model, stage).destroy()
    several_die(sharded)
    say("ended")


def gone(model):
    for use in (lambda: model(torch.ones(4, 9)), lambda: model.head.weight.norm(), lambda: copy.deepcopy(model),
                lambda: model.head.weight.tolist(), lambda: zerocore.initialize(model=model, config=config(2))):
        refused_by_text(use, "engine has ended", "save_checkpoint", "construct the m")


def several_die(sharded):
    """Engines that the ranks collect at different times."""
    models = [Net(), Net()]
    for model in models:
        trained(model, 2)
    if zerocore.ranks().rank == 0:
        gc.collect()
    del models, model
    trained(Net(), 1).destroy()


def refused_by_text(call, *parts):
    try:
        call()
    except (RuntimeError, ValueError) as error:
        assert all(part in str(error) for part in parts), error
    else:
        raise AssertionError(f"it was not refused: {parts}")


def constructed(folder):
    """A script may use parameters of zero.Init and those at rest as plain ones, or an error says how."""
    with zerocore.zero.Init():
        torch.manual_seed(1)
        model = Net()
    torch.manual_seed(1)
    plain = Net()
    sharded = zerocore.ranks().size > 1
    for at in ("constructed", "at rest"):
        weight = model.head.weight
        assert weight.shape == (5, 9) and weight.numel() == 45 and weight.dtype == torch.float32 and weight.nbytes == 180
        assert "size=(5, 9)" in repr(weight) or not sharded and at == "at rest"
        assert "Parameter containing" in repr(weight) and str(weight.data) and f"{weight}"
        if sharded or at == "constructed":
            assert weight.data_ptr() == weight.data.data_ptr() == weight.untyped_storage().data_ptr() == 0
            for use in (weight.norm, weight.tolist, weight.clone, lambda: weight + 1, lambda: weight[0, 0].item(),
                        lambda: weight.detach().numpy(), lambda: torch.save(weight, os.devnull), lambda: float(weight.sum()),
                        lambda: weight.data.fill_(0), lambda: weight.cpu().sum(), lambda: weight.half(), lambda: bool((weight == 0).all())):
                refused_by_text(use, "GatheredParameters")
        with zerocore.zero.GatheredParameters([weight]):
            assert torch.equal(weight, plain.head.weight) and torch.equal(copy.deepcopy(weight), plain.head.weight)
        assert isinstance(weight.is_shared(), bool)
        if at == "constructed":
            copied = copy.deepcopy(model.head)
            assert torch.equal(copied.weight, plain.head.weight) and torch.equal(copied.bias, plain.head.bias)
            assert type(copied.weight) is nn.Parameter and copied.weight.requires_grad
            copied(torch.ones(1, 9)).sum().backward()
            model.copied = copied  # a wrapper of peft: the model has both
            engine = zerocore.initialize(model=model, config=config(3))[0]
            state = engine.module_state_dict()
            check("after a copy", differing({name: state[name] for name in plain.state_dict()}, plain.state_dict()))
            check("the copy", differing({"weight": state["copied.weight"]}, {"weight": plain.head.weight}))
    engine.destroy()
    say("constructed")


def ranks_differ(folder):
    """Buffers and extra states that differ between ranks are saved by rank."""
    for stage in STAGES:
        engine, model = with_extra(stage, steps=2)
        model.extra.state = {"of": engine.global_rank}
        engine.save_checkpoint(f"{folder}/{stage}-differ")
        torch.save(plain_buffers(model), f"{folder}/{stage}-{engine.global_rank}.pt")
        engine.destroy()
    say("saved")


def ranks_load(folder):
    """As many ranks load their own; other numbers of ranks load rank 0's, with a notice."""
    for stage in STAGES:
        engine, model = with_extra(stage, steps=0)
        engine.load_checkpoint(f"{folder}/{stage}-differ")
        of = engine.global_rank if engine.world_size == 2 else 0
        assert model.extra.state == {"of": of}, model.extra.state
        saved = [torch.load(f"{folder}/{stage}-{rank}.pt") for rank in (0, 1)]
        check(f"stage {stage}", differing(plain_buffers(model), saved[of]))
        assert differing(*saved) == ["norm.running_mean", "norm.running_var"]
        engine.destroy()
    say("loaded")


def with_extra(stage, steps):
    torch.manual_seed(1)
    model = Net()
    model.extra = Extra({"of": "all"})
    return trained(model, stage, steps), model


def plain_buffers(model):
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


def limited(engine, folder):
    """A file of weights that cannot be written stays as it was, and each rank raises an error with its name."""
    file = pathlib.Path(folder, "limited", "whole.bin")
    engine.save_16bit_model(file.parent, file.name)
    zerocore.ranks().sum(0)
    before, limits = file.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        refused("whole.bin cannot be written", lambda: engine.save_16bit_model(file.parent, file.name))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.read_bytes() == before and os.listdir(file.parent) == [file.name]


def transfer(folder):
    """Weights of another head, folders that are none, and readers of damaged checkpoints."""
    engine = trained(Net(5), 2)
    engine.export_model(pathlib.Path(folder, "five"))
    engine.save_checkpoint(pathlib.Path(folder, "saved"))
    expected = engine.module_state_dict()
    limited(engine, folder)
    for call in (engine.save_checkpoint, engine.load_checkpoint, engine.copy_to_peers, engine.export_model, engine.load_weights,
                 engine.save_16bit_model, engine.save_fp16_model, read_weights):
        for path in ("", None, b"", 3):
            refused("expected the path of a folder", lambda: call(path))
    assert not os.path.exists("None") and engine.save_checkpoint(os.fsencode(folder) + b"/bytes")
    engine.destroy()
    torch.manual_seed(2)
    other = Net(3)
    start_of_head = other.head.weight.detach().clone()
    engine = trained(other, 3, steps=0)
    refused('"head.*"', lambda: engine.load_weights(folder + "/five"))
    assert sorted(engine.load_weights(folder + "/five", allow_missing=["head.*"])) == ["head.bias", "head.weight"]
    state = engine.module_state_dict()
    assert torch.equal(state["head.weight"], start_of_head) and torch.equal(state["blocks.0.weight"], expected["blocks.0.weight"])
    refused("load_module_strict", lambda: engine.load_checkpoint(folder + "/saved", load_module_strict=False))
    engine.destroy()
    if zerocore.ranks().rank == 0:
        damaged(pathlib.Path(folder, "saved"))
    say("transferred")


def damaged(folder):
    """A reader of whole weights returns no byte that is not the saver's, follows no link and no path outside."""
    tag = next(folder.glob("global_step*"))
    shard = sorted(tag.glob("shard-*"))[0]
    whole = shard.read_bytes()

    def fails(why):
        try:
            read_weights(folder)
        except zerocore.Error:
            return
        raise AssertionError(f"{why}: it was read")

    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    fails("a flipped bit")
    shard.write_bytes(whole[:-8])
    fails("cut short")
    outside = folder.parent / "outside"
    outside.write_bytes(whole)
    for replace in (lambda: shard.symlink_to(outside), lambda: os.mkfifo(shard)):
        shard.unlink()
        replace()
        fails("a link, or a pipe")
    shard.unlink()
    shard.write_bytes(whole)
    assert read_weights(folder)
    for name in ("../outside", str(outside)):
        refused("tag", lambda: read_weights(folder, tag=name))
    manifest = tag / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace(shard.name, "../" + shard.name))
    fails("another manifest")
    manifest.write_text(text)


if __name__ == "__main__":
    for case in sys.argv[2:]:
        {"dtypes": dtypes, "ends": ends, "constructed": constructed, "saves": ranks_differ, "loads": ranks_load,
         "transfer": transfer}[case](sys.argv[1])
