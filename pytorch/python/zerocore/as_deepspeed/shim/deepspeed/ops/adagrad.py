"""Optimizer classes like those in ops/adam.py."""

import torch

from .._missing import also_named, refuse_missing
from .adam import tell_of_fp32

__getattr__ = refuse_missing(__name__)
also_named(__name__, f"{__name__}.cpu_adagrad")


class DeepSpeedCPUAdagrad(torch.optim.Optimizer):
    def __init__(self, model_params, lr=1e-2, eps=1e-10, weight_decay=0, amsgrad=False, fp32_optimizer_states=True):
        super().__init__(model_params, {"lr": lr, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad})
        tell_of_fp32(self, fp32_optimizer_states)
