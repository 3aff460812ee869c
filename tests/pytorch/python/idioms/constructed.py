"""Values from before the engine, which constructors inside zero.Init give to parameters."""

import contextlib
import json

import torch
from torch import nn

import zerocore
from idioms.harness import Net, idiom


def init(job, **arguments):
    return contextlib.nullcontext() if job.plain else zerocore.zero.Init(**arguments)


def gathered(job, parameters, modifier_rank=None):
    return contextlib.nullcontext() if job.plain else zerocore.zero.GatheredParameters(parameters, modifier_rank)


@contextlib.contextmanager
def nothing_kept(job):
    """Cuts all but one parameter at once, as if they were large."""
    if job.plain:
        yield
        return
    from zerocore import construction
    kept, construction.KEPT_BYTES = construction.KEPT_BYTES, 0
    try:
        yield
    finally:
        construction.KEPT_BYTES = kept


class Initialized(Net):
    """Its constructor gives values to parameters of its children, in all the ways that models use."""

    def __init__(self):
        super().__init__()
        nn.init.normal_(self.head.weight, std=0.02)
        self.head.bias.data.fill_(0.25)
        with torch.no_grad():
            self.inp.weight.mul_(0.5)
            self.inp.bias[0] = 0.125
            self.blocks[0][0].weight.copy_(self.blocks[1][0].weight)
        self.apply(lambda module: nn.init.zeros_(module.bias) if isinstance(module, nn.Linear) and module.bias.numel() == 18
                   else None)
        self.blocks[2][0].bias = nn.Parameter(torch.full((18,), 0.0625))


@idiom("zero.Init around a model that is trained from scratch")
def constructed(job):
    with nothing_kept(job), init(job):
        net = job.net(kind=Initialized)
    engine = job.start(net)
    first = {f"first {name}": values.clone() for name, values in job.values(engine).items()}
    job.micro_steps(engine, 3)
    return {**first, **job.values(engine)}


@idiom("zero.Init with a seed that differs between ranks takes rank 0's values", against_torch=False)
def other_seeds(job):
    with init(job):
        net = job.net(seed=1 + job.rank)
    engine = job.start(net)
    with_own_values = job.start(job.net(seed=1))
    here, there = job.values(engine), job.values(with_own_values)
    return {"differences": [(here[name] - there[name]).abs().max().item() for name in here], "none": 0.0}


@idiom("zero.Init(module=...) of a constructed model, and what rank 0 changes when it is gathered")
def gathered_in_construction(job):
    net = job.net()
    init(job, module=net)
    with init(job):
        extra = job.net(seed=3, kind=lambda: nn.Linear(18, 5))
        with gathered(job, list(extra.parameters()), 0):
            if job.rank == 0 or job.plain:
                nn.init.ones_(extra.weight)
    net.head = extra
    with gathered(job, [net.inp.weight, net.inp.weight], 0), torch.no_grad():
        if job.rank == 0 or job.plain:
            net.inp.weight.mul_(2)
        with gathered(job, net.inp.weight):
            total = net.inp.weight.abs().sum().item()
    if job.plain:
        total = net.inp.weight.abs().sum().item()
    engine = job.start(net)
    job.micro_steps(engine, 2)
    # The sum was computed when only rank 0 had doubled its values.
    return {"total": total if job.rank == 0 else 0.0, **job.values(engine)}


class WithAdapter(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.down = nn.Linear(5, 2, bias=False)
        self.up = nn.Linear(2, 5, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        y = self.base(x)
        return y + self.up(self.down(y))


@idiom("an adapter with values over a base of zero.Init")
def adapter(job):
    with init(job):
        base = job.net()
    for parameter in base.parameters():
        parameter.requires_grad_(False)
    torch.manual_seed(5)
    engine = job.start(WithAdapter(base))
    job.micro_steps(engine, 3)
    return job.values(engine)


@idiom("an adapter with values over a base without, which a file gives", against_torch=False)
def loaded_base(job):
    source = job.start(job.net(seed=2))
    source.export_model(f"{job.folder}/base")
    expected = job.values(source)
    with torch.device("meta"):
        base = Net()
    for parameter in base.parameters():
        parameter.requires_grad_(False)
    torch.manual_seed(5)
    model = WithAdapter(base)
    down = model.down.weight.detach().clone()
    engine = job.start(model)
    try:
        job.loss(engine)
    except zerocore.UsageError as error:
        assert "base.inp.weight" in str(error) and "load_weights" in str(error), error
    else:
        raise AssertionError("a pass without values ran")
    engine = job.start(rebuilt(job))
    missing = engine.load_weights(f"{job.folder}/base", "down.weight,up.weight", {"base.": ""})
    assert sorted(missing) == ["down.weight", "up.weight"], missing
    values = job.values(engine)
    assert torch.equal(values["down.weight"], down)
    assert all(torch.equal(values["base." + name], expected[name]) for name in expected)
    job.micro_steps(engine, 2)
    other = job.start(rebuilt(job))
    other.initialize_rest(lambda name, tensor: tensor.fill_(0.5))
    assert job.values(other)["base.inp.weight"].eq(0.5).all() and torch.equal(job.values(other)["down.weight"], down)
    return job.values(engine)


def rebuilt(job):
    with torch.device("meta"):
        base = Net()
    for parameter in base.parameters():
        parameter.requires_grad_(False)
    torch.manual_seed(5)
    return WithAdapter(base)


class TiedHead(Net):
    def __init__(self):
        super().__init__()
        self.other = nn.Linear(18, 5)
        self.other.weight = self.head.weight


def write_weights(path, tensors):
    """Writes a file of safetensors."""
    header, parts, end = {}, [], 0
    for name, tensor in tensors.items():
        parts.append(tensor.numpy().tobytes())
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [end, end := end + len(parts[-1])]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(parts))


@idiom("a file that has a tied weight under one of its names, or under both", against_torch=False)
def tied_in_file(job):
    source = {name: p.detach() for name, p in job.net(seed=8, kind=TiedHead).named_parameters()}
    weight = source.pop("head.weight")
    engine = job.start(job.net(kind=TiedHead))
    files = {"first": {"head.weight": weight}, "second": {"other.weight": weight + 1},
             "both": {"head.weight": weight + 2, "other.weight": weight + 2},
             "different": {"head.weight": weight, "other.weight": weight + 3}, "neither": {}}
    read = {}
    for kind, own in files.items():
        path = f"{job.folder}/{kind}.safetensors"
        if job.rank == 0:
            write_weights(path, {**source, **own})
        try:
            engine.load_weights(path)
        except zerocore.Error as error:
            words = {"different": "head.weight and other.weight with different values", "neither": "head.weight is missing"}
            assert words[kind] in str(error), error
        else:
            read[kind] = engine.read(engine.module.head.weight).clone()
    assert read.keys() == {"first", "second", "both"}, read.keys()
    for index, values in enumerate(read.values()):
        assert torch.equal(values, weight + index), index
    job.micro_steps(engine)
    return job.values(engine)
