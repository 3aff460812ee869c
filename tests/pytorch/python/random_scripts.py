"""Random training scripts against plain PyTorch: `mpirun -n N python random_scripts.py FIRST COUNT [INDEX]...`.

A script is a loop with up to five of the habits below, drawn by its number, with its dtype and its micro steps. It is
written once, as phases of a micro step (`Script.run`), and runs with an engine at each stage, where each rank does its
own passes, and with plain PyTorch in one process, which does the passes of all ranks. In fp32 all values agree to 1e-6;
in bf16 their distance from plain fp32 is about that of plain bf16. All stages are bitwise identical. Rank 0 prints a
line for each script that is wrong, and one at the end."""

import contextlib
import copy
import random
import sys
import tempfile
import traceback

import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.optim import lr_scheduler as schedules
from torch.utils.checkpoint import checkpoint

import zerocore
from zerocore.ranks import text_of_root

STAGES = (0, 1, 2, 3, "SHARD_GRAD_OP")
STEPS = 4

# Habits that a script may have in addition to the usual loop: (name, kind), at most one of each kind.
HABITS = [
    ("tied", "model"), ("weight_norm", "model"), ("recurrent", "model"), ("scale", "model"), ("strided", "model"),
    ("checkpoint", "pass"), ("reentrant_checkpoint", "pass"), ("skips_block", "pass"), ("late_block", "pass"),
    ("uses_block_twice", "pass"), ("dropout", "noise"),
    ("hook", "hook"), ("late_hook", "hook"), ("accumulate_hook", "hook"), ("output_hook", "hook"),
    ("frozen", "choice"), ("frozen_bias", "choice"), ("criterion", "choice"),
    ("two_forwards", "order"), ("two_backwards", "order"), ("other_order", "order"), ("dangling", "order"),
    ("no_grad_between", "between"), ("evaluation_between", "between"), ("read_between", "between"),
    ("save_between", "between"), ("teacher_between", "between"),
    ("penalty", "loss"), ("by_hand", "loss"), ("forgets", "clear"), ("forgets_by_model", "clear"),
    ("boundary", "boundary"), ("extra_micro", "boundary"),
    ("sgd", "optimizer"), ("adagrad", "optimizer"), ("groups", "optimizer"), ("zero_rate", "optimizer"),
    ("configured", "optimizer"),
    ("cosine", "schedule"), ("one_cycle", "schedule"), ("sequential", "schedule"), ("written_rate", "schedule"),
    ("written_decay", "schedule"), ("plateau", "schedule"),
    ("clipped", "clipping"), ("resumed", "resume"), ("average", "copy"), ("gathered_write", "write"),
    ("engine_write", "write"), ("reads_gradient", "gradient"), ("changes_size", "batch"), ("evaluates", "evaluation"),
]


class Net(nn.Module):
    def __init__(self, habits):
        super().__init__()
        self.habits = habits
        self.inp = nn.Linear(9, 18)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(18, 18), nn.GELU()) for _ in range(3))
        self.head = nn.Linear(18, 5)
        self.norm = nn.LayerNorm(18)
        if "tied" in habits:
            self.decoder = nn.Linear(9, 18, bias=False)
            self.decoder.weight = self.inp.weight
        if "weight_norm" in habits:
            parametrizations.weight_norm(self.blocks[1][0])
        if "recurrent" in habits:
            self.recurrent = nn.GRU(18, 18, batch_first=True)
        if "scale" in habits:
            self.scale = nn.Parameter(torch.tensor(0.75))
        if "strided" in habits:
            self.strided = nn.Parameter(torch.randn(18, 5).t())

    def forward(self, x, at=(0, 0, 0)):
        hidden = self.inp(x)
        for index, block in enumerate(self.blocks):
            if not self.is_skipped(index, at):
                hidden = self.through(block, hidden)
        if "uses_block_twice" in self.habits:
            hidden = self.blocks[0](hidden)
        hidden = self.norm(hidden)
        if "recurrent" in self.habits:
            hidden = self.recurrent(hidden[:, None])[0][:, 0]
        if "dropout" in self.habits:
            hidden = nn.functional.dropout(hidden, 0.25, self.training)
        result = self.head(hidden)
        if "tied" in self.habits:
            result = result + nn.functional.linear(hidden, self.decoder.weight.t())[:, :5]
        if "strided" in self.habits:
            result = result + nn.functional.linear(hidden, self.strided)
        return result * self.scale if "scale" in self.habits else result

    def is_skipped(self, index, at):
        step, micro, rank = at
        if "skips_block" in self.habits:
            return index == (step + micro + rank) % 4
        return "late_block" in self.habits and index == 1 and (step + rank) % 4 < 2

    def through(self, block, hidden):
        if "checkpoint" in self.habits or "reentrant_checkpoint" in self.habits:
            return checkpoint(block, hidden, use_reentrant="reentrant_checkpoint" in self.habits)
        return block(hidden)


class Centers(nn.Module):
    def __init__(self):
        super().__init__()
        self.centers = nn.Parameter(torch.linspace(-1, 1, 5))

    def forward(self, prediction):
        return 0.1 * (prediction - self.centers).pow(2).mean()


class Plain:
    """Plain PyTorch in one process, which does the passes of all ranks. In bf16, the optimizer has fp32 weights."""

    def __init__(self, script, dtype=torch.float32):
        self.script, self.dtype = script, dtype
        self.ranks = range(script.size)

    def start(self, net, criterion, optimizer, schedule):
        self.net, self.criterion = net, criterion
        self.optimizer, self.scheduler = optimizer, schedule
        self.masters = None
        if self.dtype is not torch.float32:
            self.masters = {p: nn.Parameter(p.detach().clone()) for p in net.parameters() if p.requires_grad}
            for group in optimizer.param_groups:
                group["params"] = [self.masters.get(p, p) for p in group["params"]]
            for parameter in net.parameters():
                parameter.data = parameter.data.to(self.dtype)

    def __call__(self, *args, **kwargs):
        return self.net(*args, **kwargs)

    def backward(self, loss, retain_graph=False):
        (loss / self.script.accumulation).backward(retain_graph=retain_graph)

    backward_by_hand = backward

    def trained(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def forget(self, by_model):
        for parameter in [*self.net.parameters(), *self.criterion.parameters()]:
            parameter.grad = None

    def gradient(self, name):
        gradient = self.net.get_parameter(name).grad
        if gradient is None:
            return torch.zeros_like(self.net.get_parameter(name))
        return gradient.float() / self.script.size

    def step(self, is_boundary, metric):
        if not is_boundary:
            return
        for parameter, master in (self.masters or {}).items():
            master.grad = None if parameter.grad is None else parameter.grad.float()
            parameter.grad = None
        for parameter in self.trained():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)  # like the engine
            parameter.grad /= self.script.size  # after the hooks, which see one rank's gradients
        if self.script.clipping:
            nn.utils.clip_grad_norm_(self.trained(), self.script.clipping)
        self.optimizer.step()
        self.optimizer.zero_grad()
        for parameter, master in (self.masters or {}).items():
            parameter.data.copy_(master.data)
        if self.scheduler is not None:
            self.scheduler.step(**metric)

    def write(self, name, change, gathered):
        parameter = self.net.get_parameter(name)
        with torch.no_grad():
            parameter.copy_(change(parameter.float()))
            if self.masters and parameter in self.masters:
                self.masters[parameter].copy_(parameter)

    def look(self, what, teacher):
        """Calls that only read."""

    def copy_of_net(self):
        return copy.deepcopy(self.net)

    def resume(self, make):
        """Does nothing: the run continues."""

    def values(self):
        named = [*self.net.named_parameters(), *(("criterion." + n, p) for n, p in self.criterion.named_parameters())]
        return {name: (self.masters or {}).get(p, p).detach().float().clone() for name, p in named}

    def end(self):
        pass


class Sharded:
    def __init__(self, script, stage, folder):
        self.script, self.stage, self.folder = script, stage, folder
        self.job = zerocore.ranks()
        self.ranks = [self.job.rank]
        self.teacher = None

    def config(self, **more):
        core = {"gradient_sync": "each", "reshard_after_forward": self.stage != "SHARD_GRAD_OP"}
        return {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": self.script.accumulation,
                "zero_optimization": {"stage": 3 if self.stage == "SHARD_GRAD_OP" else self.stage}, "zero_core": core,
                "gradient_clipping": self.script.clipping, "steps_per_print": 0,
                "bf16": {"enabled": self.script.bf16}, **more}

    def start(self, net, criterion, optimizer, schedule):
        self.criterion, self.scheduler = criterion, schedule
        arguments = {"optimizer": optimizer, "config": self.config()}
        if "configured" in self.script.habits:
            section = {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.05, "eps": 1e-2}}
            arguments = {"model_parameters": list(net.parameters()), "config": self.config(optimizer=section)}
        given = {} if self.script.steps_by_hand else {"lr_scheduler": schedule}
        self.engine, self.optimizer, *_ = zerocore.initialize(model=net, **arguments, **given)
        if schedule is not None and "configured" in self.script.habits:
            schedule.optimizer = self.optimizer
        self.net = self.engine.module

    def __call__(self, *args, **kwargs):
        return self.engine(*args, **kwargs)

    def backward(self, loss, retain_graph=False):
        self.engine.backward(loss, retain_graph=retain_graph)

    def backward_by_hand(self, loss, retain_graph=False):
        loss.backward(retain_graph=retain_graph)

    def forget(self, by_model):
        self.engine.module.zero_grad() if by_model else self.engine.zero_grad()
        if by_model:
            self.criterion.zero_grad()

    def gradient(self, name):
        return zerocore.safe_get_full_grad(self.net.get_parameter(name)).clone()

    def step(self, is_boundary, metric):
        if "boundary" in self.script.habits or "extra_micro" in self.script.habits:
            self.engine.set_gradient_accumulation_boundary(is_boundary)
        if is_boundary and metric and not self.script.steps_by_hand:
            self.engine.step(lr_kwargs=metric)
        else:
            self.engine.step()
            if is_boundary and self.scheduler is not None and self.script.steps_by_hand:
                self.scheduler.step(**metric)

    def write(self, name, change, gathered):
        parameter = self.net.get_parameter(name)
        if gathered:
            with zerocore.zero.GatheredParameters(parameter, modifier_rank=0):
                if self.job.rank == 0:
                    parameter.data.copy_(change(parameter.data.float()))
        else:
            self.engine.write(parameter, change(self.engine.read(parameter)).to(parameter.dtype))

    def look(self, what, teacher):
        if what == "read":
            self.engine.read(self.net.head.weight)
            self.engine.digest()
        elif what == "save":
            self.engine.save_checkpoint(f"{self.folder}/between")
        elif what == "teacher":
            if self.teacher is None:
                self.teacher, *_ = zerocore.initialize(model=teacher, config=self.config())
            with torch.no_grad():
                self.teacher(torch.ones(2, 9, dtype=next(self.net.parameters()).dtype))

    def copy_of_net(self):
        with zerocore.zero.GatheredParameters(list(self.net.parameters())):
            return copy.deepcopy(self.net)

    def resume(self, make):
        path = f"{self.folder}/resumed-{self.stage}"
        by_hand = self.scheduler is not None and self.script.steps_by_hand
        self.engine.save_checkpoint(path, client_state={"schedule": self.scheduler.state_dict() if by_hand else None})
        self.engine.destroy()
        make(self)
        _, state = self.engine.load_checkpoint(path)
        if by_hand:
            self.scheduler.load_state_dict(state["schedule"])

    def values(self):
        named = [*self.net.named_parameters(), *(("criterion." + n, p) for n, p in self.criterion.named_parameters())]
        trained = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        return {name: self.engine.read(p, "master" if id(p) in trained else "value").clone() for name, p in named}

    def end(self):
        for engine in (self.engine, self.teacher):
            if engine is not None and engine.native is not None:
                engine.destroy()


SCHEDULES = {
    "cosine": lambda o: schedules.CosineAnnealingLR(o, 6),
    "one_cycle": lambda o: schedules.OneCycleLR(o, 2e-2, total_steps=9),
    "sequential": lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o, 0.1, total_iters=2), schedules.ExponentialLR(o, 0.5)], milestones=[2]),
    "plateau": lambda o: schedules.ReduceLROnPlateau(o, factor=0.5, patience=0),
}


class Script:
    def __init__(self, index, size):
        draw = random.Random(index)
        self.index, self.size = index, size
        self.bf16 = draw.random() < 0.25
        self.accumulation = draw.randint(1, 3)
        self.habits = self._draw_habits(draw)
        self.clipping = 0.5 if "clipped" in self.habits else 0.0
        self.seed = draw.randrange(1000)
        self.steps_by_hand = draw.random() < 0.5 or "configured" in self.habits

    def _draw_habits(self, draw):
        count, chosen = draw.randint(1, 5), {}
        for name, kind in draw.sample(HABITS, len(HABITS)):
            if len(chosen) < count and kind not in chosen and not self._is_excluded(name, chosen.values()):
                chosen[kind] = name
        return set(chosen.values())

    def _is_excluded(self, name, chosen):
        """Raises for combinations that plain PyTorch and DeepSpeed would not run alike."""
        others = [{"resumed", "save_between"}, {"configured", "criterion"}, {"configured", "frozen"},
                  {"configured", "frozen_bias"}, {"one_cycle", "adagrad"}, {"one_cycle", "configured"},
                  {"configured", "sequential"}, {"configured", "cosine"}, {"configured", "plateau"}, {"one_cycle", "sgd"}]
        if self.bf16 and name in ("recurrent", "criterion", "weight_norm"):
            return True
        return any(name in pair and pair - {name} <= set(chosen) for pair in others)

    def __str__(self):
        return (f"script {self.index}: {', '.join(sorted(self.habits))}; {'bf16' if self.bf16 else 'fp32'}, "
                f"{self.accumulation} micro steps, {self.size} ranks")

    def make(self, backend):
        torch.manual_seed(self.seed)
        net, criterion = Net(self.habits), Centers() if "criterion" in self.habits else nn.Module()
        if "frozen" in self.habits:
            net.blocks[0].requires_grad_(False)
        if "frozen_bias" in self.habits:
            net.head.bias.requires_grad_(False)
        self._hooks(net, late=False)
        optimizer = self._optimizer([p for p in [*net.parameters(), *criterion.parameters()] if p.requires_grad], net)
        make = next((SCHEDULES[name] for name in SCHEDULES if name in self.habits), None)
        backend.start(net, criterion, optimizer, make and make(optimizer))
        self._hooks(net, late=True)

    def _hooks(self, net, late):
        if "hook" in self.habits and not late or "late_hook" in self.habits and late:
            net.head.weight.register_hook(lambda gradient: gradient * 0.5)
            net.blocks[2][0].bias.register_hook(lambda gradient: gradient.clamp(-1e-2, 1e-2))
        if "accumulate_hook" in self.habits and not late:
            net.inp.bias.register_post_accumulate_grad_hook(lambda parameter: None)
        if "output_hook" in self.habits and late:
            net.head.register_forward_hook(lambda module, inputs, output: output * 0.5)
            net.norm.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 0.5,))

    def _optimizer(self, parameters, net):
        if "sgd" in self.habits:
            return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, weight_decay=0.01)
        if "adagrad" in self.habits:
            return torch.optim.Adagrad(parameters, lr=1e-2, eps=1e-2)
        groups = parameters
        if self.habits & {"groups", "zero_rate"}:
            own = {id(p) for p in net.head.parameters()}
            groups = [{"params": [p for p in parameters if id(p) in own], "lr": 0.0 if "zero_rate" in self.habits else 2e-2},
                      {"params": [p for p in parameters if id(p) not in own], "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.05, eps=1e-2)

    def batch(self, at, number=0):
        step, micro, rank = at
        count = 2 + (step + rank) % 3 if "changes_size" in self.habits else 2
        generator = torch.Generator().manual_seed(self.seed + 10000 * step + 1000 * micro + 100 * number + rank)
        return torch.randn(count, 9, generator=generator), torch.randn(count, 5, generator=generator)

    def loss(self, backend, at, number=0):
        x, y = self.batch(at, number)
        torch.manual_seed(hash((self.seed, *at, number)) % 2**31)  # for dropout
        prediction = backend(x.to(next(backend.net.parameters()).dtype), at).float()
        loss = nn.functional.mse_loss(prediction, y)
        if "criterion" in self.habits:
            loss = loss + backend.criterion(prediction)
        if "penalty" in self.habits:
            loss = loss + 1e-2 * sum(p.float().pow(2).sum() for p in backend.net.head.parameters())
        return loss, prediction

    def passes(self, backend, at):
        """Runs forward and backward of a rank's micro step."""
        if "dangling" in self.habits and at[0] % 2:
            self.loss(backend, at, 3)
        loss, prediction = self.loss(backend, at)
        self._between(backend, at)
        backward = backend.backward_by_hand if "by_hand" in self.habits and isinstance(backend, Plain) else backend.backward
        if "two_backwards" in self.habits:
            backward(loss, retain_graph=True)
            backward(prediction.abs().mean())
        elif "two_forwards" in self.habits:
            backward(loss + self.loss(backend, at, 1)[0])
        elif "other_order" in self.habits:
            second = self.loss(backend, at, 1)[0]
            backward(second)
            backward(loss)
        else:
            backward(loss)
        return loss.item()

    def _between(self, backend, at):
        if "no_grad_between" in self.habits or "evaluation_between" in self.habits:
            module = backend.net
            training = getattr(backend, "engine", module)
            if "evaluation_between" in self.habits:
                training.eval()
            with torch.no_grad():
                backend(torch.ones(2, 9, dtype=next(module.parameters()).dtype), at)
            training.train()
        for name in ("read", "save", "teacher"):
            if f"{name}_between" in self.habits:
                backend.look(name, Net(set()))

    def run(self, backend):
        self.make(backend)
        result, losses, micro_steps = {}, [], 0
        for step in range(STEPS):
            if step == 2:
                self._at_half(backend, result)
            micros = self.accumulation + (step % 2 if "extra_micro" in self.habits else 0)
            if "boundary" in self.habits:
                micros = max(1, self.accumulation - step % 2)
            if self.habits & {"forgets", "forgets_by_model"} and step % 2:
                for rank in backend.ranks:
                    self.passes(backend, (step, 8, rank))
                backend.forget("forgets_by_model" in self.habits)
            for micro in range(micros):
                losses.append(sum(self.passes(backend, (step, micro, rank)) for rank in backend.ranks))
                if "reads_gradient" in self.habits and micro == micros - 1:
                    for name in ("head.weight", "inp.bias"):
                        result[f"gradient {step} {name}"] = backend.gradient(name)
                micro_steps += 1
                backend.step(micro == micros - 1, {"metrics": float(step)} if "plateau" in self.habits else {})
            self._between_steps(backend, step, result)
        result.update(backend.values())
        return result, losses

    def _at_half(self, backend, result):
        if "gathered_write" in self.habits or "engine_write" in self.habits:
            backend.write("blocks.2.0.weight", lambda values: values * 0.5, "gathered_write" in self.habits)
        if "resumed" in self.habits:
            backend.resume(self.make)
        if "average" in self.habits:
            other = backend.copy_of_net()
            with torch.no_grad():
                result["copy"] = other.eval()(torch.ones(2, 9, dtype=next(other.parameters()).dtype)).float()

    def _between_steps(self, backend, step, result):
        groups = backend.optimizer.param_groups
        if "written_rate" in self.habits:
            groups[-1]["lr"] = 1e-2 / (step + 2)
        if "written_decay" in self.habits:
            groups[0].update(weight_decay=0.1 * step)
        if "zero_rate" in self.habits and step == 1:
            groups[0]["lr"] = 5e-3
        if "evaluates" in self.habits:
            getattr(backend, "engine", backend.net).eval()
            with torch.no_grad():
                result[f"evaluation {step}"] = backend(torch.ones(2, 9, dtype=next(backend.net.parameters()).dtype)).float()
            getattr(backend, "engine", backend.net).train()


def difference(here, there):
    """Returns (largest difference relative to the largest element or 1, name)."""
    assert here.keys() == there.keys(), f"{sorted(here)}, not {sorted(there)}"
    worst, at = 0.0, ""
    for name in here:
        off = ((here[name] - there[name]).abs().max() / max(1.0, there[name].abs().max().item())).item()
        if not off <= worst:
            worst, at = off, name
    return worst, at


def problem_of(script, folder):
    """Returns the problem of the script, or ""."""
    expected, expected_losses = script.run(Plain(script))
    bound = 1e-6
    if script.bf16:
        bound = 4 * difference(script.run(Plain(script, torch.bfloat16))[0], expected)[0] + 1e-3
    first = None
    for stage in STAGES:
        backend = Sharded(script, stage, folder)
        try:
            result, losses = script.run(backend)
        finally:
            with contextlib.suppress(Exception):
                backend.end()
        off, at = difference(result, expected)
        if not off <= bound:
            return f"stage {stage}: {at} differs by {off:.3g} from plain PyTorch (bound {bound:.3g})"
        sums = [backend.job.sum(loss) for loss in losses]
        if not script.bf16 and not all(abs(a - b) < 1e-5 * max(1, abs(b)) for a, b in zip(sums, expected_losses)):
            return f"stage {stage}: losses {sums}, not {expected_losses}"
        first = first or result
        if difference(result, first)[0] != 0:
            return f"stage {stage}: {difference(result, first)[1]} has other bits than at stage 0"
    return ""


def main(first, count, chosen):
    job = zerocore.ranks()
    wrong = 0
    with tempfile.TemporaryDirectory() as own:
        folder = text_of_root(job, lambda: own)
        for index in chosen or range(first, first + count):
            script = Script(index, job.size)
            try:
                problem = problem_of(script, f"{folder}/{index}")
            except Exception as error:  # noqa: BLE001: any is a finding
                problem = f"{type(error).__name__}: {error}"
                if chosen:
                    traceback.print_exc()
            if job.sum(float(bool(problem))):
                wrong += 1
                if job.rank == 0 or problem:
                    print(f"WRONG on rank {job.rank}: {script}: {problem}", flush=True)
        job.sum(0.0)
    if job.rank == 0:
        print(f"{len(chosen or range(count))} scripts, {wrong} wrong", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), [int(each) for each in sys.argv[3:]])
