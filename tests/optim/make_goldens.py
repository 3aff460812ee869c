#!/usr/bin/env python3
"""Writes tests/data/optimizer_goldens.json: 50 steps of every optimizer and every schedule, by DeepSpeed 0.19.8 and
PyTorch on the CPU, in fp32.

    python -m pip install torch transformers deepspeed==0.19.8
    python tests/optim/make_goldens.py

DeepSpeed's LAMB and fused Lion have no CPU version, so their CUDA kernels are followed here line by line, LAMB's norms
in double. Muon's Newton-Schulz steps run in fp32, like DeepSpeed's if a device lacks fp16.
"""

import json
import math
import os
import pathlib
import warnings

os.environ["DS_ACCELERATOR"] = "cpu"
os.environ["TORCHDYNAMO_DISABLE"] = "1"
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import transformers.optimization  # noqa: E402
from deepspeed.ops.adam import DeepSpeedCPUAdam  # noqa: E402
from deepspeed.runtime import lr_schedules  # noqa: E402
from deepspeed.runtime.zero.muon import original_muon  # noqa: E402
from deepspeed.runtime.zero.muon.muon_optimizer import MuonWithAuxAdam  # noqa: E402

STEPS = 50
SHAPES = {"a.wide": [6, 17], "a.tall": [19, 5], "a.square": [7, 7], "a.cube": [2, 4, 5],
          "a.bias": [23], "embed.weight": [8, 6]}


def value(tensor, element, step):
    """Returns an odd multiple of 2^-13 in [-0.5, 0.5) from a hash; the test computes the same."""
    mask = 0xFFFFFFFF
    x = (element * 747796405 + step * 2891336453 + tensor * 277803737 + 1) & mask
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & mask
    x = ((x ^ (x >> 15)) * 0x846CA68B) & mask
    x ^= x >> 16
    return (2 * (x >> 20) + 1 - 4096) / 8192


def tensor_of(index, step):
    shape = list(SHAPES.values())[index]
    count = math.prod(shape)
    return torch.tensor([value(index, e, step) for e in range(count)]).reshape(shape)


class Lamb(torch.optim.Optimizer):
    """Follows csrc/lamb/fused_lamb_cuda_kernel.cu."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0,
                 bias_correction=True, max_coeff=10.0, min_coeff=0.01, eps_inside_sqrt=False):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        self.bias_correction, self.inside = bias_correction, eps_inside_sqrt
        self.max_coeff, self.min_coeff = max_coeff, min_coeff

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["step"] += 1
                m, v, eps = state["m"], state["v"], group["eps"]
                m.copy_(beta1 * m + (1 - beta1) * p.grad)
                v.copy_(beta2 * v + (1 - beta2) * p.grad * p.grad)
                denominator = torch.sqrt(v + eps) if self.inside else torch.sqrt(v) + eps
                update = m / denominator + group["weight_decay"] * p
                size, length = p.double().norm().item(), update.double().norm().item()
                ratio = 1.0
                if size != 0 and length != 0:
                    ratio = max(min(size / length, self.max_coeff), self.min_coeff)
                rate = group["lr"]
                if self.bias_correction:
                    rate *= math.sqrt(1 - beta2**state["step"]) / (1 - beta1**state["step"])
                p.sub_(rate * ratio * update)


class Lion(torch.optim.Optimizer):
    """Follows csrc/lion/multi_tensor_lion.cu; no direction here is zero."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                c = beta1 * m + (1 - beta1) * p.grad
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.where(c > 0, -group["lr"], group["lr"]))
                m.copy_(beta2 * m + (1 - beta2) * p.grad)


def muon(parameters, params):
    """Follows DeepSpeedEngine._muon_param_groups, for one incoming group."""
    params = dict(params)
    adam_w_mode = params.pop("adam_w_mode", True)
    groups = []
    for use_muon, keys, own in ((True, ("lr", "momentum", "weight_decay", "ns_method"), "muon_lr"),
                                (False, ("lr", "betas", "eps", "weight_decay"), "adam_lr")):
        settings = {key: params[key] for key in keys if key in params}
        if own in params:
            settings["lr"] = params[own]
        chosen = [p for name, p in parameters.items()
                  if (p.dim() >= 2 and "embed" not in name) == use_muon]
        groups.append(dict(params=chosen, use_muon=use_muon, **settings))
    original_muon.ns_compute_dtype = lambda method="gram": torch.float32
    return MuonWithAuxAdam(groups, adam_w_mode=adam_w_mode)


def adafactor(flat, params):
    """torch's, or transformers', with the names of the config."""
    params = dict(params)
    eps = (params.pop("eps1", None), params.pop("eps2", 1e-3))
    if not params.pop("transformers_form", False):
        return torch.optim.Adafactor(flat, eps=eps, **params)
    renamed = {"beta2_decay": "decay_rate", "d": "clip_threshold"}
    return transformers.optimization.Adafactor(flat, eps=eps, **{renamed.get(k, k): v for k, v in params.items()})


def make_optimizer(kind, params, parameters):
    flat = list(parameters.values())
    if kind == "Adafactor":
        return adafactor(flat, params)
    if kind == "Muon":
        return muon(parameters, params)
    params = dict(params)
    if kind in ("Adam", "AdamW"):
        decoupled = kind == "AdamW" or params.pop("adam_w_mode", True)
        if params.get("bias_correction", True):  # PyTorch, if it can
            params.pop("bias_correction", None)
            defaults = {"weight_decay": 0.0} | params
            return (torch.optim.AdamW if decoupled else torch.optim.Adam)(flat, **defaults)
        return DeepSpeedCPUAdam(flat, adamw_mode=decoupled, **params)
    classes = {"Adagrad": torch.optim.Adagrad, "Lion": Lion, "Lamb": Lamb,
               "SGD": torch.optim.SGD}
    return classes[kind](flat, **params)


def run(kind, params, schedule=None, schedule_params=None):
    parameters = {name: torch.nn.Parameter(tensor_of(i, 0)) for i, name in enumerate(SHAPES)}
    optimizer = make_optimizer(kind, params, parameters)
    scheduler = None
    if schedule:
        scheduler = getattr(lr_schedules, schedule)(optimizer, **schedule_params)
    rates, betas = [], []
    for step in range(1, STEPS + 1):
        for i, parameter in enumerate(parameters.values()):
            parameter.grad = tensor_of(i, step)
        rates.append(optimizer.param_groups[0]["lr"])
        betas.append(list(optimizer.param_groups[0].get("betas", [])))
        optimizer.step()
        if scheduler:
            scheduler.step()
    config = {"optimizer": {"type": kind, "params": params}}
    if schedule:
        config["scheduler"] = {"type": schedule, "params": schedule_params}
    return {"config": config, "rates": rates if schedule else [],
            "betas": betas if betas[0] != betas[-1] else [],
            "parameters": {name: [float(f"{x:.9g}") for x in p.detach().flatten().tolist()]
                           for name, p in parameters.items()}}


def adafactor_cases(small):
    form = {"transformers_form": True, "eps1": 1e-30}
    return [
        run("Adafactor", {}), run("Adafactor", {"lr": 0.25, "weight_decay": 0.25, "beta2_decay": -0.5, "eps1": 0.2,
                                                "eps2": 0.2, "d": 1.5}),
        run("Adafactor", small | form | {"scale_parameter": False, "relative_step": False}),
        run("Adafactor", form | {"lr": 0.01, "weight_decay": 0.5, "eps2": 0.4, "d": 2.0, "beta2_decay": -0.7,
                                 "relative_step": False}),
        run("Adafactor", small, "WarmupLR", {"warmup_num_steps": 10}),
    ]


def main():
    small = {"lr": 0.01, "weight_decay": 0.1}
    cycle = {"cycle_min_lr": 0.001, "cycle_max_lr": 0.02, "cycle_first_step_size": 10,
             "cycle_second_step_size": 12, "decay_step_size": 5, "decay_lr_rate": 0.5,
             "decay_mom_rate": 0.01}
    cases = [
        run("AdamW", small), run("Adam", small | {"adam_w_mode": False}),
        run("AdamW", small | {"betas": [0.8, 0.99], "eps": 1e-6, "bias_correction": False}),
        run("Lion", small), run("Lion", {"lr": 0.002, "betas": [0.95, 0.98]}),
        run("Adagrad", {}), run("Adagrad", small | {"lr_decay": 0.01, "eps": 1e-8,
                                                   "initial_accumulator_value": 0.1}),
        run("Lamb", small), run("Lamb", {"lr": 0.05, "max_coeff": 0.3, "min_coeff": 0.2,
                                         "bias_correction": False, "eps_inside_sqrt": True}),
        run("SGD", small | {"momentum": 0.9, "nesterov": True}),
        run("SGD", small | {"momentum": 0.9, "dampening": 0.5}),
        run("Muon", {}), run("Muon", small | {"momentum": 0.9, "ns_method": "standard"}),
        run("Muon", {"muon_lr": 0.05, "adam_lr": 0.001, "weight_decay": 0.1, "betas": [0.8, 0.9],
                     "eps": 1e-6, "adam_w_mode": False}),
        run("AdamW", small, "WarmupLR", {"warmup_num_steps": 10}),
        run("AdamW", small, "WarmupLR", {"warmup_min_lr": 0.001, "warmup_max_lr": 0.02,
                                         "warmup_num_steps": 30, "warmup_type": "linear"}),
        run("SGD", {"lr": 0.1}, "WarmupDecayLR", {"total_num_steps": 40, "warmup_num_steps": 8,
                                                  "warmup_max_lr": 0.05}),
        run("Lion", small, "WarmupCosineLR", {"total_num_steps": 45, "warmup_num_steps": 8,
                                              "cos_min_ratio": 0.01, "warmup_min_ratio": 0.1}),
        run("AdamW", small, "LRRangeTest", {"lr_range_test_step_size": 7,
                                            "lr_range_test_step_rate": 2.0,
                                            "lr_range_test_staircase": True}),
        run("AdamW", small, "OneCycle", cycle),
        run("Lamb", small, "OneCycle", cycle | {"cycle_first_stair_count": 3}),
        run("SGD", {"lr": 0.1}, "OneCycle", cycle | {"cycle_momentum": False}),
        run("Muon", small, "WarmupLR", {"warmup_num_steps": 10}),
        *adafactor_cases(small),
    ]
    target = pathlib.Path(__file__).parent.parent / "data" / "optimizer_goldens.json"
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    target.write_text(f'{{"shapes":{json.dumps(SHAPES)},"cases":[\n{lines}\n]}}\n')
    print(f"{target}: {len(cases)} cases, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
