"""Idioms of training scripts: each is written once, and runs with zerocore at every stage and with plain torch.

    @idiom("a scheduler over the client's own optimizer", accumulation=2)
    def client_scheduler(job):
        net = job.net()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        engine = job.start(net, optimizer)
        for step in range(3):
            job.micro_steps(engine)
        return job.values(engine)

With plain torch each rank runs the script too, and the gradients are averaged over the ranks before the optimizer, so
that a script needs no second form; a few lines that differ use `job.plain`. The script returns a dict of tensors and
numbers, which must agree with plain torch's at every stage and number of ranks. `refused` names the stages at which an
error is right instead, with a part of its text; it may be a dict by stage, or one text for all. `refused_sharded` is
the text for sharded parameters: at stage 3, on more than one rank.

`mpirun -n 2 python run.py FILE [NAME]...` runs the idioms of FILE.py, and prints a JSON line for each idiom and stage.
"""

import dataclasses
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn

STAGES = (0, 1, 2, 3, "SHARD_GRAD_OP")
SHARDED = STAGES[3:]  # on more than one rank
_idioms = []


@dataclasses.dataclass
class Idiom:
    title: str  # its row in docs/idioms.md
    script: object
    accumulation: int = 1
    dtype: str = "fp32"
    stages: tuple = STAGES
    least_ranks: int = 1
    tolerance: float = 1e-6  # relative to the largest element, or absolute below 1
    against_torch: bool = True  # otherwise the stages are compared with each other alone
    refused: object = dataclasses.field(default_factory=dict)
    refused_sharded: str | None = None
    config: dict = dataclasses.field(default_factory=dict)

    @property
    def name(self):
        return self.script.__name__

    @property
    def file(self):
        return self.script.__module__.removeprefix("idioms.")

    def refusal(self, stage, ranks):
        """Returns the part of an error's text that is right at this stage, or None."""
        if self.refused_sharded and stage in SHARDED and ranks > 1:
            return self.refused_sharded
        return self.refused if isinstance(self.refused, str) else self.refused.get(stage)

    def is_refused_sharded_alone(self, stage):
        return bool(self.refused_sharded) and stage in SHARDED and not self.refused


def idiom(title, **options):
    def register(script):
        _idioms.append(Idiom(title, script, **options))
        return script
    return register


def all_idioms():
    return list(_idioms)


class Net(nn.Module):
    """Three blocks between an input and a head, with sizes that no number of ranks divides."""

    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(9, 18)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(18, 18), nn.GELU()) for _ in range(3))
        self.head = nn.Linear(18, 5)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class PlainEngine:
    """A loop of plain torch with the engine's calls; gradients are averaged over the ranks."""

    def __init__(self, module, optimizer, scheduler, accumulation, clipping):
        self.module, self.optimizer, self.lr_scheduler = module, optimizer, scheduler
        self._accumulation, self._clipping, self._micro = accumulation, clipping, 0
        self._boundary = None
        self.global_steps = 0

    def __call__(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def __getattr__(self, name):
        return getattr(self.module, name)

    def backward(self, loss, retain_graph=False, scale_wrt_gas=True):
        scaled = loss / self._accumulation if scale_wrt_gas else loss
        scaled.backward(retain_graph=retain_graph)
        return loss

    def averaged_gradients(self):
        """Averages gradients over the ranks, by parameter; parameters without a gradient are left out."""
        averaged = {}
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                here = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
                there = torch.tensor(float(parameter.grad is not None))
                dist.all_reduce(here)
                dist.all_reduce(there)
                if there:
                    averaged[parameter] = here / dist.get_world_size()
        return averaged

    def is_gradient_accumulation_boundary(self):
        return (self._micro + 1) % self._accumulation == 0 if self._boundary is None else self._boundary

    def set_gradient_accumulation_boundary(self, is_boundary):
        self._boundary = is_boundary

    def train(self, mode=True):
        self.module.train(mode)

    def step(self, lr_kwargs=None):
        boundary = self.is_gradient_accumulation_boundary()
        self._micro += 1
        if not boundary:
            return
        for parameter, gradient in self.averaged_gradients().items():
            parameter.grad = gradient
        if self._clipping:
            parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
            torch.nn.utils.clip_grad_norm_(parameters, self._clipping)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.lr_scheduler is not None:
            self.lr_scheduler.step(**(lr_kwargs or {}))
        self.global_steps += 1

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad()

    def read(self, parameter, what="value"):
        if what == "grad":
            return self.averaged_gradients()[parameter]
        return parameter.detach().float().clone()

    def destroy(self):
        pass


class Job:
    """One run of an idiom: with plain torch if `stage` is None, else with zerocore at that stage."""

    def __init__(self, idiom, stage, rank, size, folder):
        self.idiom, self.stage, self.rank, self.size = idiom, stage, rank, size
        self.folder = folder  # the same on all ranks, empty
        self.engines = []
        self._batches = 0

    @property
    def plain(self):
        return self.stage is None

    def config(self, **more):
        """Returns the config of the run; `more` replaces sections of it."""
        core = {"gradient_sync": "each"}
        if self.stage == "SHARD_GRAD_OP":
            core["reshard_after_forward"] = False
        document = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": self.idiom.accumulation,
                    "zero_optimization": {"stage": 3 if self.stage == "SHARD_GRAD_OP" else self.stage},
                    "zero_core": core, "gradient_clipping": 0, **self.idiom.config, **more}
        if self.idiom.dtype != "fp32":
            document[self.idiom.dtype] = {"enabled": True}
        return document

    def net(self, seed=1, kind=Net):
        torch.manual_seed(seed)
        return kind()

    def batch(self):
        """Returns the next micro-batch of this rank: (input, target)."""
        generator = torch.Generator().manual_seed(1000 * self._batches + self.rank)
        self._batches += 1
        return torch.randn(2, 9, generator=generator), torch.randn(2, 5, generator=generator)

    def start(self, model, optimizer=None, scheduler=None, accumulation=None, **more):
        """Returns the engine of the model. `optimizer`: torch's, made from the model's parameters; by default AdamW."""
        accumulation = accumulation or self.idiom.accumulation
        if optimizer is None:
            trained = [p for p in model.parameters() if p.requires_grad]
            # The usual eps of 1e-8 would make steps from the last bits of gradients that are almost 0.
            optimizer = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.01, eps=1e-6)
        if self.plain:
            engine = PlainEngine(model, optimizer, scheduler, accumulation, more.get("gradient_clipping", 0))
        else:
            import zerocore
            engine, *_ = zerocore.initialize(
                model=model, optimizer=optimizer, lr_scheduler=scheduler,
                config=self.config(gradient_accumulation_steps=accumulation, **more))
        self.engines.append(engine)
        return engine

    def loss(self, engine):
        x, y = self.batch()
        prediction = engine(x.to(next(engine.module.parameters()).dtype))
        return nn.functional.mse_loss(prediction.float(), y)

    def evaluate(self, engine):
        """One pass in eval() mode; engine.train() follows."""
        engine.eval()
        with torch.no_grad():
            return engine(torch.ones(2, 9, dtype=next(engine.module.parameters()).dtype))

    def micro_steps(self, engine, steps=1):
        """Runs `steps` optimizer steps of the usual loop; returns the losses of this rank."""
        losses = []
        for _ in range(steps * self.idiom.accumulation):
            loss = self.loss(engine)
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        return losses

    def values(self, engine):
        return {name: engine.read(parameter) for name, parameter in engine.module.named_parameters()}

    def end(self):
        for engine in self.engines:
            if not self.plain:
                engine.destroy()


def shared_folder(job_folder, number):
    """Returns a new folder that all ranks share."""
    folder = os.path.join(job_folder, str(number))
    os.makedirs(folder, exist_ok=True)
    return folder


def difference(here, there):
    """Returns the largest relative difference between two results, and its name."""
    assert here.keys() == there.keys(), f"{sorted(here)} and {sorted(there)}"
    worst, at = 0.0, ""
    for name in here:
        a, b = (torch.as_tensor(side[name], dtype=torch.float64).cpu() for side in (here, there))
        if a.shape != b.shape:
            return float("inf"), f"{name}: shapes {tuple(a.shape)} and {tuple(b.shape)}"
        if a.numel() == 0:
            continue
        off = ((a - b).abs().max() / max(1.0, b.abs().max())).item()
        if not off <= worst:  # NaN counts as a difference
            worst, at = off, name
    return worst, at


def temporary_folder():
    return tempfile.TemporaryDirectory()
