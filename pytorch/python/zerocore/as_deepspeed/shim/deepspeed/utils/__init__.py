import contextlib

import torch
from zerocore.utils import (  # noqa: F401
    safe_get_full_fp32_param, safe_get_full_grad, safe_get_full_optimizer_state, safe_set_full_fp32_param,
)

from .._missing import refuse_missing
from ..runtime.dataloader import RepeatingLoader
from . import groups, logging, zero_to_fp32
from .logging import log_dist, logger

__getattr__ = refuse_missing(__name__)


class OnDevice(contextlib.AbstractContextManager):
    """Constructs models inside the block on a device, which may be "meta"."""

    def __init__(self, dtype=None, device="meta", enabled=True):
        self._enabled, self._dtype = enabled, dtype
        self._device = torch.device(device)

    def __enter__(self):
        if self._enabled:
            self._before = torch.get_default_dtype()
            if self._dtype is not None:
                torch.set_default_dtype(self._dtype)
            self._device.__enter__()
        return self

    def __exit__(self, *error):
        if self._enabled:
            self._device.__exit__(*error)
            torch.set_default_dtype(self._before)
        return False


def set_z3_leaf_modules(model, leaf_module_classes):
    """Changes nothing, since any module works unchanged, experts without tokens included. Returns the modules of
    these classes."""
    return [module for module in model.modules() if isinstance(module, tuple(leaf_module_classes))]
