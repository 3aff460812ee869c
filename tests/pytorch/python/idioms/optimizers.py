"""The groups are the client's: rates and options written there act in the next step."""

import copy
import importlib
import inspect
import os
import warnings
from unittest import mock

import torch
from torch.optim import lr_scheduler as schedules

from idioms.harness import Net, idiom


def two_groups(net, first=1e-2, second=1e-3):
    return [{"params": list(net.blocks.parameters()), "lr": first},
            {"params": [*net.inp.parameters(), *net.head.parameters()], "lr": second}]


def rate_of(job, engine):
    """Returns the rate of the last step."""
    return job.optimizer_rate if job.plain else engine.last_step.learning_rate


def train(job, engine, steps, between=lambda step: None):
    """Runs steps and returns their first groups' rates; between(step) is called after each."""
    rates = []
    for step in range(steps):
        job.optimizer_rate = float(engine.optimizer.param_groups[0]["lr"])
        job.micro_steps(engine)
        rates.append(rate_of(job, engine))
        between(step)
    return rates


def result(job, engine, rates):
    return {"rates": torch.tensor(rates), **job.values(engine)}


@idiom("a scheduler over the client's own optimizer, stepped by hand", accumulation=2)
def client_scheduler(job):
    net = job.net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    scheduler = schedules.LambdaLR(optimizer, lambda step: 0.5 ** step)
    engine = job.start(net, optimizer)
    late = schedules.MultiplicativeLR(optimizer, lambda step: 0.9)  # another one, made after initialize
    return result(job, engine, train(job, engine, 4, lambda step: (scheduler if step < 2 else late).step()))


@idiom("rates written into the client's groups, and into the returned optimizer's")
def written_rates(job):
    net = job.net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    engine = job.start(net, optimizer)

    def write(step):
        for group in (optimizer if step % 2 else engine.optimizer).param_groups:
            group["lr"] = 1e-2 * 0.3 ** step
        if step == 2:
            engine.optimizer.param_groups = [dict(group, lr=2e-3) for group in optimizer.param_groups]
    return result(job, engine, train(job, engine, 4, write))


def configured(job, net, parameters=None, **more):
    """The config's optimizer, AdamW; with plain torch, the same made by hand."""
    if job.plain:
        groups = parameters or list(net.parameters())
        return job.start(net, torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.1))
    import zerocore
    section = {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1}}
    engine, *_ = zerocore.initialize(model=net, model_parameters=parameters, config=job.config(optimizer=section, **more))
    job.engines.append(engine)
    return engine


@idiom("the config's optimizer, and a scheduler over the returned one")
def scheduler_over_returned(job):
    engine = configured(job, job.net())
    scheduler = schedules.CosineAnnealingLR(engine.optimizer, T_max=10)
    rates = train(job, engine, 4, lambda step: scheduler.step())
    return result(job, engine, rates)


@idiom("the config's optimizer, and rates written into engine.optimizer")
def rates_over_configured(job):
    engine = configured(job, job.net())

    def write(step):
        for group in engine.optimizer.param_groups:
            group.update(lr=1e-3 * (step + 1), weight_decay=0.1 * step, betas=(0.9 / (1 + step), 0.95))
    return result(job, engine, train(job, engine, 4, write))


@idiom("the config's optimizer with the script's groups, the first of which has a rate of 0 at first")
def configured_groups(job):
    net = job.net()
    engine = configured(job, net, two_groups(net, 0.0, 1e-2))
    before = engine.read(net.blocks[0][0].weight).clone()
    rates = train(job, engine, 2)
    assert torch.equal(engine.read(net.blocks[0][0].weight), before)
    assert [group["lr"] for group in engine.optimizer.param_groups] == [0.0, 1e-2]
    engine.optimizer.param_groups[0]["lr"] = 1e-3
    return result(job, engine, rates + train(job, engine, 2))


@idiom("a backbone that thaws: a rate of 0 in some steps, ratios that change")
def thawing(job):
    net = job.net()
    optimizer = torch.optim.AdamW(two_groups(net), weight_decay=0.1)
    scheduler = schedules.LambdaLR(optimizer, [lambda step: float(step >= 2), lambda step: 1.0])
    engine = job.start(net, optimizer, scheduler)
    return result(job, engine, train(job, engine, 4))


class Staircase(schedules.LRScheduler):
    """A program's own scheduler, which reads the groups' rates and writes one more value into them."""

    def get_lr(self):
        for group in self.optimizer.param_groups:
            group["weight_decay"] = 0.1 / (1 + self.last_epoch)
        return [rate * 0.5 ** (self.last_epoch // 2) for rate in self.base_lrs]


SCHEDULERS = {
    "one_cycle": lambda o: schedules.OneCycleLR(o, max_lr=[1e-2, 3e-2], total_steps=12),
    "cyclic": lambda o: schedules.CyclicLR(o, 1e-3, 1e-2, step_size_up=3),
    "sequential": lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o, 0.1, total_iters=3), schedules.CosineAnnealingLR(o, 7)], milestones=[3]),
    "chained": lambda o: schedules.ChainedScheduler([schedules.ExponentialLR(o, 0.9), schedules.LinearLR(o, 0.5, total_iters=4)]),
    "warm_restarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 3),
    "step": lambda o: schedules.StepLR(o, 2),
    "exponential": lambda o: schedules.ExponentialLR(o, 0.5),
    "constant": lambda o: schedules.ConstantLR(o, 0.5, total_iters=2),
    "linear": lambda o: schedules.LinearLR(o, 0.25, total_iters=4),
    "polynomial": lambda o: schedules.PolynomialLR(o, total_iters=5, power=2),
    "multi_step": lambda o: schedules.MultiStepLR(o, [1, 3], 0.3),
    "cosine": lambda o: schedules.CosineAnnealingLR(o, 5, 1e-4),
    "multiplicative": lambda o: schedules.MultiplicativeLR(o, lambda step: 0.8),
    "averaging": lambda o: torch.optim.swa_utils.SWALR(o, swa_lr=[1e-3, 5e-3], anneal_epochs=3),
    "chain_of_sequences": lambda o: schedules.SequentialLR(o, [schedules.ChainedScheduler([
        schedules.ConstantLR(o, 0.5, total_iters=2), schedules.ExponentialLR(o, 0.9)]), schedules.StepLR(o, 1, 0.5)], [4]),
    "own": lambda o: Staircase(o),
    "warmup": lambda o: schedules.LambdaLR(o, lambda step: min(1.0, step / 4)),
}


def with_scheduler(kind, momentum=False):
    def script(job):
        net = job.net()
        groups = two_groups(net)
        optimizer = torch.optim.SGD(groups, momentum=0.9) if momentum else torch.optim.AdamW(groups, weight_decay=0.1)
        scheduler = SCHEDULERS[kind](optimizer)
        engine = job.start(net, optimizer, scheduler)
        return result(job, engine, train(job, engine, 6))
    script.__name__ = f"{kind}_{'sgd' if momentum else 'adamw'}"
    return script


for kind in SCHEDULERS:
    idiom(f"{kind.replace('_', ' ')} schedule")(with_scheduler(kind))
for kind in ("one_cycle", "cyclic"):
    idiom(f"{kind.replace('_', ' ')} schedule, with SGD's momentum")(with_scheduler(kind, momentum=True))


@idiom("ReduceLROnPlateau, by engine.step(lr_kwargs=...)")
def plateau_by_engine(job):
    net = job.net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    scheduler = schedules.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    engine = job.start(net, optimizer, scheduler)
    rates = []
    for metric in (1.0, 2.0, 3.0, 0.5):
        job.optimizer_rate = optimizer.param_groups[0]["lr"]
        engine.backward(job.loss(engine))
        engine.step(lr_kwargs={"metrics": metric})
        rates.append(rate_of(job, engine))
    return result(job, engine, rates)


@idiom("ReduceLROnPlateau, stepped by hand")
def plateau_by_hand(job):
    net = job.net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    scheduler = schedules.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    engine = job.start(net, optimizer)
    return result(job, engine, train(job, engine, 4, lambda step: scheduler.step(float(step))))


@idiom("ReduceLROnPlateau given to initialize, and no metrics", against_torch=False,
       refused='engine.step(lr_kwargs={"metrics": loss})')
def plateau_without_metrics(job):
    net = job.net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    engine = job.start(net, optimizer, schedules.ReduceLROnPlateau(optimizer))
    job.micro_steps(engine)


@idiom("weight decay, betas and eps that change from step to step")
def changing_options(job):
    net = job.net()
    optimizer = torch.optim.AdamW(two_groups(net), weight_decay=0.1)
    engine = job.start(net, optimizer)

    def write(step):
        first, second = engine.optimizer.param_groups
        first["weight_decay"] = 0.4 + 0.1 * step
        second["betas"], second["eps"] = (0.9 - 0.1 * step, 0.99), 1e-6
    return result(job, engine, train(job, engine, 5, write))


def subclass_of(base):
    class Mine(base):
        """Changes nothing."""
    return Mine


OPTIMIZERS = {
    "adam_decoupled": lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=0.1, decoupled_weight_decay=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=0.1),
    "rate_as_tensor": lambda p: torch.optim.Adam(p, lr=torch.tensor(1e-3)),
    "fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "not_foreach": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=False),
    "subclass": lambda p: subclass_of(torch.optim.AdamW)(p, lr=1e-3, weight_decay=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True, weight_decay=0.1),
    "dampening": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, dampening=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2, lr_decay=0.1, initial_accumulator_value=0.01, weight_decay=0.1),
}


def with_optimizer(kind):
    def script(job):
        net = job.net()
        engine = job.start(net, OPTIMIZERS[kind](list(net.parameters())))
        return result(job, engine, train(job, engine, 5))
    script.__name__ = f"optimizer_{kind}"
    return script


for kind in OPTIMIZERS:
    idiom(f"client's optimizer: {kind.replace('_', ' ')}")(with_optimizer(kind))


class Named(Net):
    """Has the names of parameters that the config's Muon leaves to Adam, and more rows than columns and fewer."""

    def __init__(self):
        super().__init__()
        self.lm_head = torch.nn.Linear(5, 5)
        self.embed = torch.nn.Linear(9, 9, bias=False)

    def forward(self, x):
        return self.lm_head(super().forward(self.embed(x)))


def with_muon(job):
    net = job.net(kind=Named)
    matrices = [p for p in net.parameters() if p.ndim == 2]
    optimizer = torch.optim.Muon([{"params": matrices[:3], "lr": 5e-3}, {"params": matrices[3:], "weight_decay": 0.3}], lr=1e-2)
    scheduler = schedules.LambdaLR(optimizer, lambda step: 0.8 ** step)
    engine = job.start(net, optimizer, scheduler)
    before = {name: engine.read(p).clone() for name, p in net.named_parameters()}

    for step in range(5):
        # Many samples, since the iteration multiplies the rounding errors of gradients without full rank by hundreds.
        x, y = (torch.cat(parts) for parts in zip(*(job.batch() for _ in range(16))))
        engine.backward(torch.nn.functional.mse_loss(engine(x), y))
        engine.step()
        optimizer.param_groups[0].update(momentum=0.95 - 0.1 * step)
    for name, parameter in net.named_parameters():
        moved = not torch.equal(engine.read(parameter), before[name])
        assert moved == (parameter.ndim == 2), name
    return job.values(engine)


# With fp32 in place of bf16, plain torch differs from itself by 5e-3 after these steps.
@idiom("client's optimizer: torch's Muon, which computes its matrix products in bf16 and the engine in fp32", tolerance=1e-2)
def muon(job):
    return with_muon(job)


@idiom("client's optimizer: torch's Muon, with fp32 in place of bf16 in torch's function, too")
def muon_in_fp32(job):
    from torch.optim import _muon
    text = inspect.getsource(_muon._zeropower_via_newtonschulz)
    assert "torch.bfloat16" in text
    space = dict(vars(_muon))
    exec(text.replace("torch.bfloat16", "torch.float32"), space)  # noqa: S102: torch's own source
    with mock.patch.object(_muon, "_zeropower_via_newtonschulz", space["_zeropower_via_newtonschulz"]):
        return with_muon(job)


class Shaped(Net):
    """Has parameters of no and of three dimensions, a row and a column."""

    def __init__(self):
        super().__init__()
        self.cube = torch.nn.Parameter(torch.randn(3, 2, 9))
        self.row, self.column = torch.nn.Parameter(torch.randn(1, 9)), torch.nn.Parameter(torch.randn(9, 1))
        self.gain = torch.nn.Parameter(torch.tensor(0.7))

    def forward(self, x):
        return super().forward(x * self.gain + self.cube.mean((0, 1)) * self.row[0] + self.column[:, 0] ** 2)


def adafactor(name, module, **options):
    def script(job):
        net = job.net(kind=Shaped)
        matrices = [p for p in net.parameters() if p.ndim > 1]
        rest = [p for p in net.parameters() if p.ndim < 2]
        groups = [{"params": matrices[::2] + rest[::2]}, {"params": matrices[1::2] + rest[1::2], "weight_decay": 0.3}]
        optimizer = importlib.import_module(module).Adafactor(groups, **options)
        engine = job.start(net, optimizer)
        for step in range(20):
            job.micro_steps(engine)
            if "lr" in options:
                optimizer.param_groups[0]["lr"] = options["lr"] * 0.9 ** step
        return job.values(engine)
    script.__name__ = f"adafactor_{name}"
    return script


idiom("client's optimizer: torch's Adafactor")(adafactor("plain", "torch.optim", lr=0.02, weight_decay=0.1))
idiom("client's optimizer: torch's Adafactor with other options")(
    adafactor("options", "torch.optim", lr=0.02, beta2_decay=-0.6, eps=(1e-4, 0.05), d=1.5, foreach=False))
idiom("client's optimizer: transformers' Adafactor as the Trainer makes it")(
    adafactor("trainer", "transformers.optimization", lr=0.01, scale_parameter=False, relative_step=False))
idiom("client's optimizer: transformers' Adafactor with scaled steps and decay")(
    adafactor("scaled", "transformers.optimization", lr=0.05, relative_step=False, eps=(1e-20, 0.1), clip_threshold=2.0,
              decay_rate=-0.7, weight_decay=0.2))
idiom("client's optimizer: transformers' Adafactor with relative steps that warm up")(
    adafactor("relative", "transformers.optimization", warmup_init=True, weight_decay=0.2))


class AdamW(torch.optim.Optimizer):
    """A different rule under a known name."""

    def __init__(self, params, lr=1e-3):
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0})


class Clamping(torch.optim.AdamW):
    def step(self, closure=None):
        return super().step(closure)


def hooked(params):
    optimizer = torch.optim.AdamW(params)
    optimizer.register_step_pre_hook(lambda *arguments: None)
    return optimizer


def refused_optimizer(name, make, text):
    def script(job):
        net = job.net()
        job.start(net, make(list(net.parameters())))
    script.__name__ = f"refused_{name}"
    idiom(f"refused optimizer: {name.replace('_', ' ')}", against_torch=False, refused=text)(script)


refused_optimizer("look_alike", AdamW, "optimizer AdamW is not one of the engine's, but idioms.optimizers.AdamW")
refused_optimizer("own_step", Clamping, "Clamping has a step() in place of AdamW's")
refused_optimizer("nadam", torch.optim.NAdam, "NAdam is not one of the engine's")
refused_optimizer("amsgrad", lambda p: torch.optim.AdamW(p, amsgrad=True), "amsgrad of group 0 is True")
refused_optimizer("maximize", lambda p: torch.optim.SGD(p, maximize=True), "maximize of group 0 is True")
for option, value in (("nesterov", False), ("ns_steps", 6), ("ns_coefficients", (2.0, -1.5, 0.5)), ("eps", 1e-6),
                      ("adjust_lr_fn", "match_rms_adamw")):
    refused_optimizer(f"muon_{option}", lambda p, more={option: value}: torch.optim.Muon([p[0]], **more),
                      f"optimizer torch.optim.Muon: {option} of group 0 is {value}")
refused_optimizer("adafactor_maximize", lambda p: torch.optim.Adafactor(p, maximize=True), "maximize of group 0 is True")
refused_optimizer("adafactor_momentum", lambda p: importlib.import_module("transformers.optimization").Adafactor(
    p, lr=1e-3, relative_step=False, beta1=0.9), "beta1 of group 0 is 0.9")
refused_optimizer("step_hook", hooked, "a hook of register_step_pre_hook()")


@idiom("an empty group, as LoRA leaves of the Trainer's groups")
def empty_group(job):
    net = job.net()
    groups = [{"params": [], "weight_decay": 0.0}, {"params": list(net.parameters())}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    scheduler = schedules.LambdaLR(optimizer, lambda step: 0.5 ** step)
    engine = job.start(net, optimizer, scheduler)
    return result(job, engine, train(job, engine, 3))


class Centers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.centers = torch.nn.Parameter(torch.linspace(-1, 1, 5))

    def forward(self, prediction, target):
        return (prediction - target).pow(2).mean() + 0.1 * (prediction - self.centers).pow(2).mean()


@idiom("a criterion with parameters of its own, in the client's groups")
def criterion(job):
    net, centers = job.net(), Centers()
    engine = job.start(net, torch.optim.AdamW([*net.parameters(), *centers.parameters()], lr=1e-2))
    for _ in range(5):
        x, y = job.batch()
        engine.backward(centers(engine(x), y))
        engine.step()
    values = engine.read(centers.centers)
    assert (values - torch.linspace(-1, 1, 5)).abs().max() > 1e-3
    return {"centers": values, **job.values(engine)}


@idiom("a group that is added after initialize", against_torch=False, refused="add_param_group() after zerocore.initialize()")
def added_group(job):
    net = job.net()
    optimizer = torch.optim.AdamW(net.blocks.parameters(), lr=1e-2)
    job.start(net, optimizer)
    optimizer.add_param_group({"params": list(net.head.parameters())})


@idiom("a refused value leaves the engine usable")
def refused_value(job):
    net = job.net()
    optimizer = torch.optim.AdamW([{"params": list(net.blocks.parameters())}, {"params": list(net.head.parameters())}], lr=1e-2)
    engine = job.start(net, optimizer)
    engine.backward(job.loss(engine))

    def exchange():
        one, other = (group["params"] for group in engine.optimizer.param_groups)
        one[0], other[0] = other[0], one[0]

    def refused(text):
        try:
            engine.step()
            raise AssertionError(f"no error with {text}")
        except RuntimeError as error:
            assert text in str(error), error
    if not job.plain:
        engine.optimizer.param_groups[0]["lr"] = -1.0
        refused("lr of optimizer group 0 is -1.0")
        engine.optimizer.param_groups[0]["lr"] = 1e-2
        exchange()
        refused("parameters of the optimizer's groups are others")
        exchange()
    engine.step()
    job.micro_steps(engine)
    return job.values(engine)


@idiom("torch's warning of a scheduler before its optimizer, which would be false")
def no_false_warning(job):
    net = job.net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    scheduler = schedules.StepLR(optimizer, 2)
    engine = job.start(net, optimizer)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        train(job, engine, 3, lambda step: scheduler.step())
    assert not [w for w in seen if "lr_scheduler" in str(w.message)], [str(w.message) for w in seen]
    return job.values(engine)


RESUMED = ("one_cycle", "sequential", "chained", "warm_restarts", "step", "exponential", "polynomial", "averaging", "own",
           "chain_of_sequences", "warmup", "by_hand")


def resumed(kind):
    """Three steps, a save, three more; then the last three again in a new engine that loads the save. With plain
    torch: six steps."""
    def make(job):
        net = job.net()
        optimizer = torch.optim.AdamW(two_groups(net), weight_decay=0.1)
        scheduler = None if kind == "by_hand" else SCHEDULERS[kind](optimizer)
        return job.start(net, optimizer, scheduler)

    def script(job):
        engine = make(job)
        rates = train(job, engine, 3)
        if kind == "by_hand":
            engine.optimizer.param_groups[1].update(lr=2.5e-3, weight_decay=0.3)
        if job.plain:
            return result(job, engine, rates + train(job, engine, 3))
        folder = os.path.join(job.folder, kind)
        engine.save_checkpoint(folder)
        batches = job._batches
        rates += train(job, engine, 3)
        digest = engine.digest()
        engine.destroy()
        again, job._batches = make(job), batches
        again.load_checkpoint(folder)
        resumed_rates = train(job, again, 3)
        assert resumed_rates == rates[3:], f"{resumed_rates}, not {rates[3:]}"
        assert again.digest() == digest
        return result(job, again, rates)
    script.__name__ = f"resumed_{kind}"
    return script


for kind in RESUMED:
    idiom(f"a resume with a {kind.replace('_', ' ')} schedule", stages=(0, 3))(resumed(kind))


@idiom("loss.backward() by hand under fp16, whose loss scale it lacks", dtype="fp16", against_torch=False,
       refused="engine.scale(loss).backward()")
def unscaled_backward(job):
    engine = job.start(job.net())
    job.loss(engine).backward()
    engine.step()


@idiom("the optimizer's state_dict() and load_state_dict(), which carry the groups")
def state_of_groups(job):
    net = job.net()
    optimizer = torch.optim.AdamW(two_groups(net), weight_decay=0.1)
    engine = job.start(net, optimizer)
    saved = engine.optimizer.state_dict()
    train(job, engine, 2)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    if job.plain:
        saved["state"] = optimizer.state_dict()["state"]
    called = []
    engine.optimizer.register_load_state_dict_pre_hook(lambda _, state: called.append(len(state["param_groups"])))
    engine.optimizer.register_load_state_dict_post_hook(lambda _: called.append("after"))
    engine.optimizer.load_state_dict(saved)
    assert called == [2, "after"]
    assert [group["lr"] for group in engine.optimizer.param_groups] == [1e-2, 1e-3]
    return result(job, engine, train(job, engine, 2))


def started(params):
    optimizer = torch.optim.AdamW(params, lr=1e-3)
    for parameter in params:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


refused_optimizer("moments", started, "has moments already")


@idiom("the moments in optimizer.state", against_torch=False, refused="safe_get_full_optimizer_state")
def moments_in_state(job):
    net = job.net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    engine = job.start(net, optimizer)
    job.micro_steps(engine)
    assert not optimizer.state and net.head.weight not in engine.optimizer.state
    return {"exp_avg": engine.optimizer.state[net.head.weight]["exp_avg"]}


@idiom("step() of an optimizer", against_torch=False, refused="call engine.step()")
def step_of_optimizer(job):
    engine = job.start(job.net())
    engine.backward(job.loss(engine))
    engine.optimizer.step()


@idiom("step() of the client's own optimizer", against_torch=False, refused="call engine.step()")
def step_of_client(job):
    net = job.net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, foreach=False)
    engine = job.start(net, optimizer)
    engine.backward(job.loss(engine))
    optimizer.step()


@idiom("zero_grad() of an optimizer, at the top of the loop")
def zero_grad_of_optimizer(job):
    net = job.net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    engine = job.start(net, optimizer)
    for step in range(3):
        (optimizer if step % 2 else engine.optimizer).zero_grad()
        engine.backward(job.loss(engine))
        engine.step()
    return job.values(engine)


@idiom("a copy of the optimizer", against_torch=False, refused="cannot be copied")
def copied_optimizer(job):
    copy.deepcopy(job.start(job.net()).optimizer)


@idiom("attributes of the client's optimizer on the one that comes back")
def attributes(job):
    net = job.net()
    optimizer = subclass_of(torch.optim.AdamW)(net.parameters(), lr=1e-2)
    optimizer.remark = "mine"
    engine = job.start(net, optimizer)
    assert engine.optimizer.remark == "mine" and engine.optimizer.defaults["lr"] == 1e-2
    assert isinstance(engine.optimizer, torch.optim.Optimizer) and not hasattr(engine.optimizer, "nothing")
    job.micro_steps(engine)
    return job.values(engine)


@idiom("a rate that differs between the ranks", against_torch=False, least_ranks=2, refused="rank 1 has \"optimizer.params.lr = 0.002\"")
def rate_of_each_rank(job):
    net = job.net()
    engine = job.start(net, torch.optim.AdamW(net.parameters(), lr=1e-3 * (1 + job.rank)))
    job.micro_steps(engine)
