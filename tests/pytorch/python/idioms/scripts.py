"""Tools around the loop: those of torch, second optimizers, and losses from inside of the model."""

import ctypes

import torch
import torch.distributed as dist
import torch.distributed.nn
from torch import nn
from torch.utils.checkpoint import checkpoint

from idioms.harness import Net, idiom


@idiom("a second optimizer, over parameters that the first one lacks", against_torch=False,
       refused="SGD.step() would do nothing: head.weight is a parameter of the engine of a Net, and frozen")
def second_optimizer(job):
    net = job.net()
    first, second = torch.optim.AdamW(net.blocks.parameters()), torch.optim.SGD(net.head.parameters(), lr=0.1)
    engine = job.start(net, first)
    job.micro_steps(engine)
    second.step()


@idiom("an optimizer that is made over the engine's parameters, and stepped", against_torch=False,
       refused="Adam.step() would do nothing: inp.weight is a parameter of the engine of a Net, which trains it")
def late_optimizer(job):
    engine = job.start(job.net())
    optimizer = torch.optim.Adam(engine.parameters())
    job.micro_steps(engine)
    optimizer.step()


@idiom("another optimizer, over parameters of no engine and over frozen ones")
def other_optimizer(job):
    net = job.net()
    net.inp.requires_grad_(False)
    engine = job.start(net)
    own = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([own, *net.inp.parameters()], lr=0.1)
    job.micro_steps(engine)
    own.pow(2).sum().backward()
    optimizer.step()
    return {"own": own.detach(), **job.values(engine)}


@idiom("two phases, of which the first trains the head alone")
def two_phases(job):
    net = job.net()
    first = job.start(net, torch.optim.SGD(net.head.parameters(), lr=0.1))
    job.micro_steps(first, 2)
    net.zero_grad()  # with plain torch, the others have gradients
    second = job.start(net, torch.optim.SGD(net.parameters(), lr=0.1))
    job.micro_steps(second, 2)
    return job.values(second)


@idiom("torch's profiler with shapes, memory and a schedule")
def profiled(job):
    engine = job.start(job.net())
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=2)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule, record_shapes=True,
                                profile_memory=True) as profiler:
        for _ in range(7):
            job.micro_steps(engine)
            profiler.step()
    job.micro_steps(engine)
    return {"output": job.evaluate(engine), **job.values(engine)}


@idiom("a parameter in float64 among others in fp32")
def float64_parameter(job):
    class Scaled(Net):
        def __init__(self):
            super().__init__()
            self.last = nn.ParameterDict({"scale": torch.ones((), dtype=torch.float64)})

        def forward(self, x):
            return (super().forward(x) * self.last["scale"]).float()

    engine = job.start(job.net(kind=Scaled))
    job.micro_steps(engine, 3)
    return {name: value.float() for name, value in job.values(engine).items()}


@idiom("an evaluation in inference_mode, between passes and after steps")
def inference_mode(job):
    engine = job.start(job.net())
    outputs = {}
    for step in range(3):
        loss = job.loss(engine)
        with torch.inference_mode():
            outputs[f"output {step}"] = engine(torch.ones(2, 9)).clone()
        engine.backward(loss)
        engine.step()
    return {**outputs, **job.values(engine)}


class Gated(nn.Module):
    """Keeps a loss of its own, as a mixture of experts does."""

    def __init__(self):
        super().__init__()
        self.linear, self.gate = nn.Linear(18, 18), nn.Linear(18, 3)

    def forward(self, x):
        shares = self.gate(x).softmax(-1)
        self.balance = shares.mean(0).pow(2).sum()
        return x + self.linear(x) * shares[:, :1]


class Balanced(Net):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Gated() for _ in range(3))

    def forward(self, x, y):
        self.loss = nn.functional.mse_loss(super().forward(x), y)


@idiom("losses that the model and its blocks keep as attributes")
def kept_losses(job):
    engine = job.start(job.net(kind=Balanced))
    for _ in range(3):
        engine(*job.batch())
        engine.backward(engine.module.loss + 0.1 * sum(block.balance for block in engine.module.blocks))
        engine.step()
    return job.values(engine)


def checkpoint_model(job, reentrant, both=False):
    engine = job.start(job.net())
    for _ in range(3):
        x, y = job.batch()
        prediction = checkpoint(engine, x.requires_grad_(), use_reentrant=reentrant)
        loss = nn.functional.mse_loss(prediction, y)
        engine.backward(loss + nn.functional.mse_loss(engine(2 * x), y) if both else loss)
        engine.step()
    return job.values(engine)


@idiom("torch.utils.checkpoint around the whole model")
def checkpointed(job):
    return checkpoint_model(job, False)


@idiom("torch.utils.checkpoint around the whole model, reentrant", refused="use_reentrant=False")
def checkpointed_reentrant(job):
    return checkpoint_model(job, True)


@idiom("torch.utils.checkpoint around the whole model, next to a pass without")
def checkpointed_and_not(job):
    return checkpoint_model(job, False, both=True)


@idiom("torch.utils.checkpoint around the whole model, reentrant, next to a pass without",
       refused="is in its engine until the step")
def checkpointed_reentrant_and_not(job):
    return checkpoint_model(job, True, both=True)


class InPlace(Net):
    """Writes to outputs of units, and to views of them."""

    def forward(self, x):
        x = self.inp(x)
        for index, block in enumerate(self.blocks):
            y = block(x)
            if index % 2:
                y = y.unsqueeze(0).squeeze(0)
            y += x
            x = y
        z = self.head(x)
        z[:, 0] *= 2
        return z


@idiom("operations in place on outputs of units, and on views of them")
def in_place(job):
    engine = job.start(job.net(kind=InPlace))
    job.micro_steps(engine, 3)
    return job.values(engine)


@idiom("a contrastive loss over features that torch.distributed gathers from all ranks")
def contrastive(job):
    engine = job.start(job.net())
    for _ in range(3):
        features = nn.functional.normalize(engine(job.batch()[0]))
        everything = torch.cat(torch.distributed.nn.functional.all_gather(features))
        own = torch.arange(len(features)) + len(features) * dist.get_rank()
        engine.backward(nn.functional.cross_entropy(features @ everything.t(), own))
        engine.step()
    return job.values(engine)


class Examples(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(9, generator=generator), torch.randn(5, generator=generator)


@idiom("a DataLoader with workers, and a DistributedSampler", stages=(0, 3))
def loader_with_workers(job):
    engine = job.start(job.net())
    sampler = torch.utils.data.DistributedSampler(Examples(), job.size, job.rank)
    loader = torch.utils.data.DataLoader(Examples(), 2, sampler=sampler, num_workers=1, persistent_workers=True)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            engine.backward(nn.functional.mse_loss(engine(x), y))
            engine.step()
    return job.values(engine)


class ByAddress(torch.autograd.Function):
    """x * weight by a kernel that gets addresses, in forward and in backward, as kernels of Triton do."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * ByAddress.read(weight)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient * ByAddress.read(weight), (gradient * x).sum(0)

    @staticmethod
    def read(weight):
        memory = (ctypes.c_float * weight.numel()).from_address(weight.data_ptr())
        return torch.frombuffer(memory, dtype=torch.float32).clone()


class Scaled(nn.Module):
    """A block with such a kernel as its first and as its last operation."""

    def __init__(self):
        super().__init__()
        self.before, self.after = (nn.Parameter(torch.linspace(0.5, 1.5, 18)) for _ in range(2))
        self.linear = nn.Linear(18, 18)

    def forward(self, x):
        return ByAddress.apply(self.linear(ByAddress.apply(x, self.before)), self.after)


class ScaledNet(Net):
    def __init__(self, reentrant=None):
        super().__init__()
        self.blocks = nn.ModuleList(Scaled() for _ in range(3))
        self.reentrant = reentrant

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x) if self.reentrant is None else checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)


@idiom("kernels that get the addresses of weights, as those of Triton, also in checkpoints", accumulation=2)
def kernels_by_address(job):
    values = {}
    for reentrant in (None, False, True):
        engine = job.start(job.net(kind=lambda reentrant=reentrant: ScaledNet(reentrant)))
        job.micro_steps(engine, 2)
        values.update({f"{reentrant} {name}": value for name, value in job.values(engine).items()})
    return values
