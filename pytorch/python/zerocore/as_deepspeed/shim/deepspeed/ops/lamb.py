"""Optimizer classes like those in ops/adam.py."""

import torch

from .._missing import also_named, refuse_missing

__getattr__ = refuse_missing(__name__)
also_named(__name__, f"{__name__}.fused_lamb")


class FusedLamb(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-8, eps_inside_sqrt=False,
                 weight_decay=0.0, max_grad_norm=0.0, max_coeff=10.0, min_coeff=0.01, amsgrad=False):
        super().__init__(params, {"lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps,
                                  "weight_decay": weight_decay, "max_grad_norm": max_grad_norm, "max_coeff": max_coeff,
                                  "min_coeff": min_coeff, "amsgrad": amsgrad})
        self.eps_mode = 0 if eps_inside_sqrt else 1
