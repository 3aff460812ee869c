"""Writes tests/data/schedule_goldens.json: the learning rates of DeepSpeed's schedulers.

Usage: DS_ACCELERATOR=cpu python make_schedule_goldens.py    (needs torch and deepspeed 0.19.8)
"""

import json
import logging
import os
import pathlib

os.environ.setdefault("DS_ACCELERATOR", "cpu")
logging.disable(logging.WARNING)

import torch
from deepspeed.runtime import lr_schedules

STEPS = 60
LEARNING_RATE = 3e-4


def cases():
    for kind in ("log", "linear"):
        for steps in (1, 2, 7, 40, 1000):
            warmup = {"warmup_type": kind, "warmup_num_steps": steps}
            yield "WarmupLR", warmup
            yield "WarmupLR", {**warmup, "warmup_min_lr": 1e-5, "warmup_max_lr": 2e-3}
            for total in (5, 50, 400):
                yield "WarmupDecayLR", {**warmup, "total_num_steps": total, "warmup_min_lr": 1e-5}
                yield "WarmupCosineLR", {**warmup, "total_num_steps": total, "warmup_min_ratio": 0.1,
                                         "cos_min_ratio": 0.05}
    yield "WarmupLR", {}
    yield "WarmupLR", {"warmup_num_steps": 9, "last_batch_iteration": 4}
    yield "WarmupDecayLR", {"total_num_steps": 30, "warmup_num_steps": 10, "warmup_max_lr": 1e-3}
    yield "WarmupCosineLR", {"total_num_steps": 30, "warmup_num_steps": 10}
    for staircase in (False, True):
        for size in (1, 3, 2000):
            yield "LRRangeTest", {"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": size,
                                  "lr_range_test_step_rate": 2.5, "lr_range_test_staircase": staircase}
    cycle = {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3, "cycle_momentum": False}
    yield "OneCycle", cycle
    for first, second in ((10, None), (7, 13), (4, 0), (1, 1)):
        for decay, rate in ((0, 0), (3, 0.5), (10, 2)):
            for stairs in ((0, None), (3, None), (2, 5)):
                yield "OneCycle", {**cycle, "cycle_first_step_size": first, "cycle_second_step_size": second,
                                   "decay_step_size": decay, "decay_lr_rate": rate,
                                   "cycle_first_stair_count": stairs[0], "cycle_second_stair_count": stairs[1]}


def rates_of(name, params):
    """Returns the rates of the optimizer's first STEPS steps."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([weight], lr=LEARNING_RATE)
    schedule = getattr(lr_schedules, name)(optimizer, **params)
    rates = []
    for _ in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        schedule.step()
    return rates


def main():
    lines = []
    for name, params in cases():
        config = {"optimizer": {"type": "AdamW", "params": {"lr": LEARNING_RATE}},
                  "scheduler": {"type": name, "params": params}}
        lines.append(json.dumps({"config": config, "rates": rates_of(name, params)}))
    target = pathlib.Path(__file__).resolve().parents[1] / "data" / "schedule_goldens.json"
    target.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    print(f"{len(lines)} cases, {target.stat().st_size} bytes")


main()
