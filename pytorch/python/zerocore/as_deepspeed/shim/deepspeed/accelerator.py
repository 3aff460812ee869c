"""deepspeed.accelerator: the CPU."""

import torch

from ._missing import also_named, refuse_missing

__getattr__ = refuse_missing(__name__)
also_named(__name__, f"{__name__}.real_accelerator")


class _Cpu:
    _name = "cpu"

    def device_name(self, device_index=None):
        return "cpu"

    def current_device_name(self):
        return "cpu"

    def device(self, device_index=None):
        return torch.device("cpu")

    def current_device(self):
        return 0

    def device_count(self):
        return 1

    def set_device(self, device_index):
        """Returns the only accelerator."""

    def is_available(self):
        return True

    def communication_backend_name(self):
        return "gloo"

    def synchronize(self, device_index=None):
        """Does nothing: kernels are done when their call returns."""

    def empty_cache(self):
        """Does nothing: the engine allocates its memory once."""

    def manual_seed(self, seed):
        return torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def is_bf16_supported(self):
        return True

    def is_fp16_supported(self):
        return True

    def __getattr__(self, name):
        return refuse_missing("deepspeed.get_accelerator()")(name)


_accelerator = _Cpu()


def get_accelerator():
    return _accelerator
