"""Changes from outside the engine: values, hooks, copies, buffers, and attributes of parameters."""

import contextlib
import copy
import io
import pickle

import torch
from torch import nn
import torch.nn.utils.parametrize  # noqa: F401
import torch.nn.utils.prune  # noqa: F401

from idioms.harness import SHARDED, Net, idiom

BELOW_3 = (0, 1, 2)


def changed(job, change):
    engine = job.start(job.net())
    for _ in range(2):
        change(engine.module)
        job.micro_steps(engine)
    return job.values(engine)


@idiom("load_state_dict() between steps", refused_sharded="sharded at rest")
def loaded(job):
    return changed(job, lambda module: module.load_state_dict(job.net(5).to(next(module.parameters()).dtype).state_dict()))


@idiom("weights that are clamped, masked and set between steps", refused_sharded="sharded at rest")
def clamped(job):
    def change(module):
        module.head.weight.data.clamp_(-0.1, 0.1)
        with torch.no_grad():
            module.inp.weight.mul_(0.5)
            module.blocks[0][0].weight[0] = 0
        nn.init.zeros_(module.head.bias)
    return changed(job, change)


@idiom("weights that are set between steps, in bf16", dtype="bf16", stages=BELOW_3, against_torch=False)
def set_in_bf16(job):
    engine = job.start(job.net())
    job.micro_steps(engine)
    with torch.no_grad():
        engine.module.head.weight.copy_(torch.full((5, 18), 0.375))
    master = engine.read(engine.module.head.weight, "master")
    assert master.eq(0.375).all(), master
    job.micro_steps(engine)
    value = engine.read(engine.module.head.weight)
    assert (value - 0.375).abs().max() < 0.01, value
    return job.values(engine)


@idiom("weights that differ between the ranks", least_ranks=2, stages=BELOW_3, against_torch=False,
       refused="head.weight was written to by the program, and rank 1 has other values")
def set_differently(job):
    engine = job.start(job.net())
    engine.module.head.weight.data.fill_(float(job.rank))
    job.micro_steps(engine)


@idiom("a hook that writes to weights in forward", refused="inside of a forward or backward pass")
def masked_in_forward(job):
    net = job.net()

    def mask(module, _):
        module.weight.data.mul_(0.5)

    net.head.register_forward_pre_hook(mask)
    engine = job.start(net)
    job.micro_steps(engine)


@idiom("a parametrization that comes and goes inside of forward")
def parametrized_in_forward(job):
    """As peft does for LoRA on the fused weights of experts."""
    class Scaled(nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.scale = scale

        def forward(self, weight):
            return weight * self.scale

    class Adapted(Net):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.full((5, 1), 0.75))

        def forward(self, x):
            nn.utils.parametrize.register_parametrization(self.head, "weight", Scaled(self.scale))
            try:
                return super().forward(x)
            finally:
                nn.utils.parametrize.remove_parametrizations(self.head, "weight", leave_parametrized=False)

    engine = job.start(job.net(1, Adapted))
    for _ in range(2):
        job.micro_steps(engine)
    return job.values(engine)


@idiom("Embedding(max_norm)", refused="max_norm")
def max_norm(job):
    class Table(Net):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(7, 9, max_norm=1.0)
    job.start(job.net(1, Table))
    return {}


@idiom("parameters frozen after initialize", refused="is frozen now")
def frozen_later(job):
    engine = job.start(job.net())
    job.micro_steps(engine)
    engine.module.blocks[1].requires_grad_(False)
    job.micro_steps(engine)
    return job.values(engine)


@idiom("parameters that are added after initialize", refused="was added")
def added_later(job):
    engine = job.start(job.net())
    engine.module.extra = nn.Linear(3, 3)
    job.micro_steps(engine)
    return {}


@idiom("a module that is replaced after initialize", refused="was added")
def replaced_module(job):
    engine = job.start(job.net())
    engine.module.head = nn.Linear(18, 5)
    job.micro_steps(engine)
    return {}


@idiom("a bias that a module gets after initialize", refused="was added")
def bias_added_later(job):
    class WithoutBias(Net):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(18, 5, bias=False)
    engine = job.start(job.net(1, WithoutBias))
    engine.module.head.bias = nn.Parameter(torch.zeros(5))
    job.micro_steps(engine)
    return {}


@idiom("two parameters over one memory", refused="share memory")
def one_memory(job):
    class Sharing(Net):
        def __init__(self):
            super().__init__()
            self.other = nn.Parameter(self.inp.weight.data[:4])
    job.start(job.net(1, Sharing))
    return {}


@idiom("hooks on gradients, before and after initialize", accumulation=2)
def hooks(job):
    net = job.net()
    calls = []

    def halve(parameter):
        calls.append(parameter.grad.norm().item())

    net.head.weight.register_hook(lambda gradient: gradient * 0.5)
    net.inp.weight.register_post_accumulate_grad_hook(halve)
    engine = job.start(net)
    net.blocks[0][0].weight.register_hook(lambda gradient: gradient * 2)
    net.inp.bias.register_post_accumulate_grad_hook(halve)
    job.micro_steps(engine, 2)
    return {"calls": len(calls), **job.values(engine)}


@idiom("a hook that clamps gradients, which sees those of a micro-batch's share", accumulation=2)
def clamping_hook(job):
    net = job.net()
    net.head.weight.register_hook(lambda gradient: gradient.clamp(-1e-2, 1e-2))
    engine = job.start(net, torch.optim.SGD(net.parameters(), lr=0.1))
    net.inp.bias.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
    job.micro_steps(engine, 2)
    return job.values(engine)


@idiom("a hook that changes a gradient when it has arrived")
def changing_hook(job):
    net = job.net()

    def halve(parameter):
        parameter.grad.mul_(0.5)

    net.inp.weight.register_post_accumulate_grad_hook(halve)
    engine = job.start(net, torch.optim.SGD(net.parameters(), lr=0.1))
    net.head.weight.register_post_accumulate_grad_hook(halve)
    job.micro_steps(engine, 2)
    return job.values(engine)


def copied(job, make):
    engine = job.start(job.net())
    job.micro_steps(engine, 2)
    other = make(engine.module)
    job.micro_steps(engine, 2)
    with torch.no_grad():
        return {"output": other(torch.ones(2, 9)), **{name: p.detach() for name, p in other.named_parameters()}}


@idiom("deepcopy() of the model", refused_sharded="GatheredParameters")
def deep_copied(job):
    return copied(job, lambda module: copy.deepcopy(copy.deepcopy(module)))


@idiom("AveragedModel of the model", refused_sharded="GatheredParameters")
def averaged(job):
    return copied(job, torch.optim.swa_utils.AveragedModel)


@idiom("torch.save() of the model", refused_sharded="GatheredParameters")
def saved_whole(job):
    def save(module):
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        return torch.load(file, weights_only=False)
    return copied(job, save)


@idiom("deepcopy() of the model inside of GatheredParameters")
def deep_copied_gathered(job):
    def gathered(module):
        if job.plain:
            return copy.deepcopy(module)
        import zerocore
        with zerocore.zero.GatheredParameters(list(module.parameters())):
            return copy.deepcopy(module)
    return copied(job, gathered)


class Counting(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.tensor(1000.0))
        self.register_buffer("scale", torch.arange(4096, dtype=torch.float32))

    def forward(self, x):
        self.count += 1
        return super().forward(x)


@idiom("fp32 buffers under bf16", dtype="bf16", against_torch=False)
def buffers(job):
    engine = job.start(job.net(1, Counting))
    job.micro_steps(engine, 10)
    module = engine.module
    assert module.count.dtype == torch.float32 and module.count.item() == 1010, module.count
    assert torch.equal(module.scale, torch.arange(4096, dtype=torch.float32))
    return {"count": module.count}


class Normalized(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(9, 18)
        self.norm = nn.BatchNorm1d(18, momentum=0.01)
        self.plain = nn.BatchNorm1d(18, affine=False)
        self.over = nn.InstanceNorm1d(1, affine=True, track_running_stats=True)
        self.head = nn.Linear(18, 5)

    def forward(self, x):
        x = self.norm(self.inp(x))
        return self.head(self.over(self.plain(x).unsqueeze(1)).squeeze(1))


def followed(norm):
    """A plain fp32 module that sees what `norm` does."""
    plain = type(norm)(norm.num_features, momentum=norm.momentum, track_running_stats=True)

    def follow(_, inputs):
        with torch.no_grad():
            plain(inputs[0].float())

    norm.register_forward_pre_hook(follow)
    return plain


def statistics_of(job):
    engine = job.start(job.net(1, Normalized))
    norms = [engine.module.get_submodule(name) for name in ("norm", "plain", "over")]
    plain = [followed(norm) for norm in norms]
    job.micro_steps(engine, 20)
    for one, other in zip(norms, plain):
        for name in ("running_mean", "running_var"):
            here, there = getattr(one, name), getattr(other, name)
            assert here.dtype == torch.float32 and torch.allclose(here, there, atol=1e-5), (name, here, there)
    return job.values(engine)


@idiom("BatchNorm and InstanceNorm under bf16, with fp32 statistics", dtype="bf16", against_torch=False)
def normalized_bf16(job):
    return statistics_of(job)


@idiom("BatchNorm and InstanceNorm under fp16, with fp32 statistics", dtype="fp16", against_torch=False)
def normalized_fp16(job):
    return statistics_of(job)


class Quantized(Net):
    def __init__(self):
        super().__init__()
        self.held = nn.Module()  # after the others, whose dtype is that of the batches
        self.held.q = nn.Parameter(torch.randint(0, 255, (5, 18), dtype=torch.uint8), requires_grad=False)
        self.held.on = nn.Parameter(torch.tensor([True, False, True]), requires_grad=False)
        self.held.eight = nn.Parameter(torch.arange(200, dtype=torch.uint8).view(torch.float8_e4m3fn), requires_grad=False)
        patterns = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16)
        self.held.stored = nn.Parameter(patterns.view(torch.bfloat16), requires_grad=False)
        self.held.stored.quant_state = "as of bitsandbytes' 4-bit weights"
        self.held.coded = nn.Parameter(torch.ones(9, dtype=torch.bfloat16), requires_grad=False)
        self.held.coded.zerocore_bytes = True

    def forward(self, x):
        hidden = self.inp(x)
        for block in self.blocks:
            hidden = block(hidden)
        weights = (self.held.q.float() / 255 - 0.5 + self.held.eight[:18].float()).to(hidden.dtype)
        return self.head(hidden) + nn.functional.linear(hidden, weights) * self.held.on.sum()


@idiom("frozen integers and 8-bit numbers, and bytes stored as bf16")
def quantized(job):
    import zerocore
    net = job.net(1, Quantized)
    before = {name: p.detach().clone() for name, p in net.named_parameters() if not p.requires_grad}
    engine = job.start(net)
    job.micro_steps(engine, 2)
    own = dict(engine.module.named_parameters())
    with zerocore.zero.GatheredParameters([own[name] for name in before]):  # stage 3 shards numbers of one byte
        assert all(own[name].detach().view(-1).view(torch.uint8).equal(p.view(-1).view(torch.uint8)) for name, p in before.items())
    return {name: engine.read(p) for name, p in engine.module.named_parameters() if p.requires_grad}


@idiom("complex parameters", refused="view_as_complex")
def complex_parameter(job):
    class Rotating(Net):
        def __init__(self):
            super().__init__()
            self.held = nn.Module()
            self.held.c = nn.Parameter(torch.randn(3, dtype=torch.complex64))

        def forward(self, x):
            return super().forward(x) * self.held.c.abs().sum()
    engine = job.start(job.net(1, Rotating))
    job.micro_steps(engine)
    return {}


class Odd(Net):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.none = nn.Parameter(torch.zeros(0, 3))
        self.strided = nn.Parameter(torch.randn(18, 5).t())
        self.pairs = nn.Parameter(torch.randn(3, 5, 2))

    def forward(self, x):
        hidden = self.inp(x) + self.none.sum()
        for block in self.blocks:
            hidden = block(hidden)
        turned = torch.view_as_complex(self.pairs).abs().sum()
        return (self.head(hidden) + nn.functional.linear(hidden, self.strided)) * self.scale * turned


@idiom("0-dim, empty, strided and complex-viewed parameters")
def odd_parameters(job):
    engine = job.start(job.net(1, Odd))
    job.micro_steps(engine, 2)
    return {name: value for name, value in job.values(engine).items() if value.numel() > 0}


def gathered(job, parameters, modifier_rank=None):
    if job.plain:
        return contextlib.nullcontext()
    import zerocore
    return zerocore.zero.GatheredParameters(parameters, modifier_rank)


@idiom("weights that rank 0 changes when they are gathered")
def changed_by_root(job):
    engine = job.start(job.net())
    for _ in range(2):
        with gathered(job, list(engine.module.parameters()), 0):
            if job.plain or job.rank == 0:
                engine.module.head.weight.data.mul_(0.5)
                nn.init.ones_(engine.module.head.bias)
        job.micro_steps(engine)
    return job.values(engine)


@idiom("weights that are changed when they are gathered, without a modifier_rank",
       refused=dict.fromkeys(SHARDED, "without a modifier_rank, head.weight among them"))
def changed_by_nobody(job):
    engine = job.start(job.net())
    for _ in range(2):
        with gathered(job, list(engine.module.parameters())):
            engine.module.head.weight.data = engine.module.head.weight.data.flip(0)
        job.micro_steps(engine)
    return job.values(engine)


@idiom("out= that writes to weights", refused_sharded="sharded at rest")
def written_by_out(job):
    def change(module):
        weight = module.head.weight.detach()
        torch.mul(weight, 0.5, out=weight)
        torch.add(module.inp.bias.data, 0.25, out=module.inp.bias.data)
    return changed(job, change)


@idiom("out= that writes to weights, in bf16", dtype="bf16", stages=BELOW_3, against_torch=False)
def written_by_out_in_bf16(job):
    engine = job.start(job.net())
    job.micro_steps(engine)
    weight = engine.module.head.weight.detach()
    torch.zeros(5, 18, dtype=weight.dtype, out=weight)
    assert engine.read(engine.module.head.weight, "master").eq(0).all()
    job.micro_steps(engine)
    return job.values(engine)


@idiom("torch._foreach_mul_() of weights", refused_sharded="sharded at rest")
def written_by_foreach(job):
    return changed(job, lambda module: torch._foreach_mul_([p.data for p in module.parameters()], 0.75))


@idiom("a weight that is written to as an array of numpy", refused_sharded="sharded at rest")
def written_by_numpy(job):
    engine = job.start(job.net())
    array = engine.module.head.weight.detach().numpy()
    for _ in range(2):  # torch reports neither the first write nor a later one
        job.micro_steps(engine)
        array[...] *= 0.5
    job.micro_steps(engine)
    return job.values(engine)


@idiom("is_shared() of weights")
def is_shared(job):
    assert not any(parameter.is_shared() for parameter in job.start(job.net()).module.parameters())
    return {}


@idiom("arrays of numpy that are none of weights")
def other_arrays(job):
    engine = job.start(job.net())
    job.micro_steps(engine)
    tensor = torch.zeros(3)
    tensor.numpy()[...] = 1
    copied = engine.read(engine.module.head.weight).clone()
    copied.numpy()[...] = 2
    return {"ones": tensor, "twos": copied}


@idiom("weights that are given as one vector", refused="was given other memory")
def vector_to_parameters(job):
    engine = job.start(job.net())
    vector = torch.zeros(sum(p.numel() for p in engine.module.parameters()))
    nn.utils.vector_to_parameters(vector, engine.module.parameters())
    job.micro_steps(engine)
    return {}


@idiom("half() or to() of the model after initialize", refused="was given other memory", refused_sharded="sharded at rest")
def converted_later(job):
    engine = job.start(job.net())
    engine.module.to(torch.float64)
    job.micro_steps(engine)
    return {}


@idiom("a parameter that is replaced after initialize", refused="was replaced by another tensor")
def replaced_later(job):
    engine = job.start(job.net())
    engine.module.head.weight = nn.Parameter(torch.zeros(5, 18))
    job.micro_steps(engine)
    return {}


@idiom("pruning after initialize", refused="was replaced by another tensor", refused_sharded="sharded at rest")
def pruned_later(job):
    engine = job.start(job.net())
    nn.utils.prune.random_unstructured(engine.module.head, "weight", 0.5)
    job.micro_steps(engine)
    return {}


@idiom("parameters thawed after initialize", refused="requires a gradient now")
def thawed_later(job):
    net = job.net()
    net.head.requires_grad_(False)
    engine = job.start(net)
    net.head.requires_grad_(True)
    job.micro_steps(engine)
    return {}


@idiom("a moving average by hand, of the values at rest", refused_sharded="sharded at rest")
def average_by_hand(job):
    engine = job.start(job.net())
    average = {name: p.detach().clone() for name, p in engine.module.named_parameters()}
    for _ in range(3):
        job.micro_steps(engine)
        for name, parameter in engine.module.named_parameters():
            average[name].lerp_(parameter.detach(), 0.1)
    return average


@idiom("a moving average by hand, of values that are read")
def average_of_read(job):
    engine = job.start(job.net())
    average = job.values(engine)
    for _ in range(3):
        job.micro_steps(engine)
        for name, values in job.values(engine).items():
            average[name].lerp_(values, 0.1)
    return average


@idiom("a parameter that is pickled, and one that is copied", refused_sharded="GatheredParameters")
def pickled_parameter(job):
    engine = job.start(job.net())
    job.micro_steps(engine)
    parameter = engine.module.head.weight
    file = io.BytesIO()
    torch.save({"head": parameter}, file)
    file.seek(0)
    copies = [pickle.loads(pickle.dumps(parameter)), copy.deepcopy(parameter), torch.load(file, weights_only=True)["head"]]
    job.micro_steps(engine)
    for each in copies:
        assert isinstance(each, nn.Parameter) and each.requires_grad
        with gathered(job, each), torch.no_grad():
            each.mul_(2)
    return {"pickled": copies[0].detach(), "copied": copies[1].detach(), "saved": copies[2].detach(), **job.values(engine)}


class Reassigning(Net):
    """Its buffers are other tensors after each pass."""

    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(5))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x):
        result = super().forward(x)
        if self.training:
            self.average = 0.9 * self.average + 0.1 * result.detach().mean(0)
            self.count = self.count + 1
        return result


@idiom("buffers that the model replaces in each pass, saved and loaded")
def replaced_buffers(job):
    engine = job.start(job.net(1, Reassigning))
    job.micro_steps(engine, 3)
    there = engine
    if not job.plain:
        engine.save_checkpoint(job.folder)
        there = job.start(job.net(2, Reassigning))
        job.micro_steps(there)
        there.load_checkpoint(job.folder)
        job._batches -= 1
        assert there.digest() == engine.digest()
    job.micro_steps(there)
    # Each rank has its own values in a pass, and a checkpoint has rank 0's.
    average = there.module.average.clone() if job.rank == 0 else torch.zeros(5)
    return {"count": there.module.count, "average": average, **job.values(there)}


@idiom("an AveragedModel that is updated after each step", refused_sharded="GatheredParameters")
def averaged_in_steps(job):
    engine = job.start(job.net())
    average = torch.optim.swa_utils.AveragedModel(
        engine.module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    for _ in range(3):
        job.micro_steps(engine)
        average.update_parameters(engine.module)
    with torch.no_grad():
        return {"output": average(torch.ones(2, 9)), **{name: p.detach() for name, p in average.named_parameters()}}


@idiom("buffers that the config casts", dtype="bf16", against_torch=False, config={"data_types": {"buffer_dtype": "bf16"}})
def cast_buffers(job):
    engine = job.start(job.net(1, Counting))
    job.micro_steps(engine, 2)
    assert engine.module.count.dtype == torch.bfloat16 and engine.module.scale.dtype == torch.bfloat16
    return {"count": engine.module.count.float()}
