"""Optimizer classes like those in ops/adam.py."""

import torch

from .._missing import also_named, refuse_missing
from .adam import tell_of_fp32

__getattr__ = refuse_missing(__name__)
also_named(__name__, f"{__name__}.cpu_lion", f"{__name__}.fused_lion")


class FusedLion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), weight_decay=0.0, set_grad_none=True):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})


class DeepSpeedCPULion(FusedLion):
    def __init__(self, model_params, lr=1e-3, betas=(0.9, 0.999), weight_decay=0, fp32_optimizer_states=True):
        super().__init__(model_params, lr, betas, weight_decay)
        tell_of_fp32(self, fp32_optimizer_states)
