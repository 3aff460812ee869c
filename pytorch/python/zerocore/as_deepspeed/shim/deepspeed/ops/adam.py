"""Optimizer classes that hold a script's groups and options; the engine does the step."""

import warnings

import torch

from .._missing import also_named, refuse_missing

__getattr__ = refuse_missing(__name__)
also_named(__name__, f"{__name__}.cpu_adam", f"{__name__}.fused_adam")


def tell_of_fp32(optimizer, fp32_optimizer_states):
    """Warns that states have fp32, whatever the script asks for."""
    if not fp32_optimizer_states:
        warnings.warn(f"zerocore: {type(optimizer).__name__}: fp32_optimizer_states=False has no effect: the engine's states are fp32",
                      stacklevel=3)


class FusedAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-8, adam_w_mode=True,
                 weight_decay=0.0, amsgrad=False, set_grad_none=True):
        if not bias_correction:
            raise ValueError(f"{type(self).__name__}: the engine's Adam corrects its bias")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                                  "amsgrad": amsgrad})
        self.adam_w_mode = adam_w_mode


class DeepSpeedCPUAdam(FusedAdam):
    def __init__(self, model_params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-8, weight_decay=0,
                 amsgrad=False, adamw_mode=True, fp32_optimizer_states=True):
        super().__init__(model_params, lr, bias_correction, betas, eps, adamw_mode, weight_decay, amsgrad)
        tell_of_fp32(self, fp32_optimizer_states)
