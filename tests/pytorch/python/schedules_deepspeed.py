"""DeepSpeed's schedules as objects: schedules_deepspeed.py GOLDENS FOLDER. GOLDENS has the rates of DeepSpeed's own ones, in
each step of a run; FOLDER is for a checkpoint."""

import json
import sys

import deepspeed
import torch
from deepspeed.runtime import lr_schedules

CONFIG = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}


def close(here, there):
    return abs(here - there) <= 1e-9 * max(1.0, abs(there))


def run(golden):
    """(an engine whose client's schedule is the golden's, the rates that are right)."""
    torch.manual_seed(1)
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=golden["config"]["optimizer"]["params"]["lr"])
    schedule = golden["config"]["scheduler"]
    scheduler = getattr(lr_schedules, schedule["type"])(optimizer, **schedule["params"])
    engine, _, _, returned = deepspeed.initialize(model=net, optimizer=optimizer, lr_scheduler=scheduler, config=CONFIG)
    assert returned is scheduler
    return engine, golden["rates"]


def steps(engine, expected):
    for rate in expected:
        assert close(engine.get_lr()[0], rate), (engine.get_lr(), rate)
        engine.backward(engine(torch.ones(2, 3)).pow(2).mean())
        engine.step()
        assert close(engine.last_step.learning_rate, rate), (engine.last_step.learning_rate, rate)


def every_schedule(goldens):
    """Each of DeepSpeed's, without an engine."""
    for golden in goldens:
        optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=golden["config"]["optimizer"]["params"]["lr"])
        schedule = golden["config"]["scheduler"]
        scheduler = getattr(lr_schedules, schedule["type"])(optimizer, **schedule["params"])
        for rate in golden["rates"]:
            assert close(optimizer.param_groups[0]["lr"], rate), (schedule, optimizer.param_groups[0]["lr"], rate)
            assert close(scheduler.get_last_lr()[0], rate) and close(scheduler.get_lr()[0], rate)
            optimizer.step()
            scheduler.step()


def groups():
    """Values by group, momentum, and what is refused."""
    one, two = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW([{"params": [one], "lr": 0.1}, {"params": [two], "lr": 0.2}])
    scheduler = lr_schedules.WarmupLR(optimizer, [0.01, 0.02], None, 4, "linear")
    optimizer.step()
    scheduler.step()
    scheduler.step()
    assert close(scheduler.get_last_lr()[0], 0.01 + 0.09 / 4) and close(scheduler.get_last_lr()[1], 0.02 + 0.18 / 4)
    lr_schedules.OneCycle(optimizer, 1e-4, 1e-3, cycle_first_step_size=4).step()
    assert optimizer.param_groups[1]["betas"] == (0.875, 0.99), optimizer.param_groups[1]["betas"]
    cycle = lr_schedules.OneCycle(optimizer, 1e-4, [1e-3, 2e-3], cycle_first_step_size=4, cycle_min_mom=[0.8, 0.6])
    assert [group["betas"] for group in optimizer.param_groups] == [(0.8, 0.99), (0.6, 0.99)]
    assert cycle.get_mom() == [(0.9, 0.99)] * 2 and cycle.total_size == 8 and cycle.max_lrs == [1e-3, 2e-3]
    cycle.step(batch_iteration=3)
    assert close(cycle.get_lr()[1], 2e-3) and close(cycle.get_mom()[1][0], 0.6), (cycle.get_lr(), cycle.get_mom())
    plain = torch.optim.SGD([one], lr=0.1)
    assert lr_schedules.OneCycle(plain, 1e-4, 1e-3).get_mom() is None
    wrapped = type("Wrapper", (), {"optimizer": plain})()
    lr_schedules.LRRangeTest(wrapped, 0.25).step(batch_iteration=1)
    assert lr_schedules.WarmupCosineLR(plain, 10, warmup_type="none such").warmup_type == "log"
    for make, part in ((lambda: lr_schedules.WarmupLR(plain, warmup_num_steps=None), "warmup_num_steps is None"),
                       (lambda: lr_schedules.OneCycle(plain, 0.1, 0.2, cycle_first_step_size=0), "cycle_first_step_size")):
        try:
            make()
        except ValueError as error:
            assert part in str(error), error
        else:
            raise AssertionError(part)
    for make, part in ((lambda: lr_schedules.WarmupLR(optimizer, [0.1] * 3), "warmup_min_lr has 3 values"),
                       (lambda: lr_schedules.WarmupDecayLR(optimizer, 0), "total_num_steps"),
                       (lambda: lr_schedules.LRRangeTest(one), "is not an Optimizer")):
        try:
            make()
        except Exception as error:
            assert part in str(error), error
        else:
            raise AssertionError(part)


def of_config(kind, golden):
    """The config's schedule is of DeepSpeed's class, steps by itself, and goes where the program says."""
    config = json.loads(json.dumps({**CONFIG, **golden["config"]}))
    if kind == "OneCycle":
        config["scheduler"]["params"]["cycle_momentum"] = True
    engine, optimizer, _, scheduler = deepspeed.initialize(model=torch.nn.Linear(3, 2), config=config)
    rates = golden["rates"]
    assert type(scheduler) is not lr_schedules.WarmupLR and isinstance(scheduler, getattr(lr_schedules, kind))
    steps(engine, rates[:3])
    assert scheduler.last_batch_iteration == 2 and close(scheduler.get_lr()[0], rates[3])
    if kind == "OneCycle":
        assert scheduler.get_mom()[0] == optimizer.param_groups[0]["betas"], scheduler.get_mom()
    scheduler.step()  # one more than engine.step() takes
    steps(engine, rates[4:6])
    scheduler.step(1)
    steps(engine, rates[2:4])
    engine.lr_scheduler = None  # Lightning steps it then, next to engine.step()
    scheduler.step()
    steps(engine, rates[4:5])


def argument_first():
    """An lr_scheduler that initialize() is given replaces the config's, as in DeepSpeed."""
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    config = {**CONFIG, "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.1}}}
    engine, _, _, returned = deepspeed.initialize(model=net, optimizer=optimizer, lr_scheduler=schedule, config=config)
    assert returned is schedule
    steps(engine, [0.01, 0.005, 0.0025])
    for optimizer, config in ((None, {**CONFIG, "optimizer": {"type": "AdamW", "params": {"lr": 0.1}}}), (None, CONFIG)):
        try:
            deepspeed.initialize(model=net, optimizer=optimizer, lr_scheduler=schedule, config=config)
        except AssertionError as error:
            assert "lr_scheduler" in str(error), error
        else:
            raise AssertionError("a schedule over no optimizer")


def main(path, folder):
    with open(path, encoding="utf-8") as file:
        goldens = json.load(file)
    every_schedule(goldens)
    groups()
    by_type = {golden["config"]["scheduler"]["type"]: golden for golden in goldens[5:]}
    assert len(by_type) == 5
    argument_first()
    for kind, golden in by_type.items():
        of_config(kind, golden)
        engine, rates = run(golden)
        steps(engine, rates[:6])
        engine.save_checkpoint(folder, tag=kind)
        resumed, _ = run(golden)
        resumed.load_checkpoint(folder, tag=kind)
        steps(engine, rates[6:12])
        steps(resumed, rates[6:12])
        assert engine.digest() == resumed.digest()
    print("every schedule")


main(sys.argv[1], sys.argv[2])
