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
    for make, part in ((lambda: lr_schedules.WarmupLR(optimizer, [0.1] * 3), "warmup_min_lr has 3 values"),
                       (lambda: lr_schedules.WarmupDecayLR(optimizer, 0), "total_num_steps"),
                       (lambda: lr_schedules.LRRangeTest(one), "is not an Optimizer")):
        try:
            make()
        except Exception as error:
            assert part in str(error), error
        else:
            raise AssertionError(part)


def main(path, folder):
    with open(path, encoding="utf-8") as file:
        goldens = json.load(file)
    every_schedule(goldens)
    groups()
    by_type = {golden["config"]["scheduler"]["type"]: golden for golden in goldens[5:]}
    assert len(by_type) == 5
    for kind, golden in by_type.items():
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
