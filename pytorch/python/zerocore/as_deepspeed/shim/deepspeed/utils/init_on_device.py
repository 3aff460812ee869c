import contextlib

import torch

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


class OnDevice(contextlib.AbstractContextManager):
    """Constructs parameters on the given device, which may be "meta", inside the block."""

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
