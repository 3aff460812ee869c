"""deepspeed.accelerator: the device of the ranks, a GPU or the CPU."""

import torch

from zerocore.ranks import device_type

from ._missing import also_named, refuse_missing

__getattr__ = refuse_missing(__name__)
also_named(__name__, f"{__name__}.real_accelerator")


class _Accelerator:
    def is_available(self):
        return True

    def is_fp16_supported(self):
        return True

    def __getattr__(self, name):
        return refuse_missing("deepspeed.get_accelerator()")(name)


class _Cpu(_Accelerator):
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


class _Cuda(_Accelerator):
    """GPUs by their numbers among the visible ones. As for the ranks, a larger number begins again at the first GPU: a rank may
    see its own GPU alone."""

    _name = "cuda"
    _AS_IN_TORCH = {
        "Event", "Stream", "current_device", "current_stream", "default_stream", "device_count", "empty_cache", "get_rng_state",
        "initial_seed", "is_bf16_supported", "manual_seed", "manual_seed_all", "max_memory_allocated", "max_memory_reserved",
        "memory_allocated", "memory_reserved", "memory_stats", "reset_peak_memory_stats", "set_rng_state", "stream"}

    def device_name(self, device_index=None):
        return "cuda" if device_index is None else f"cuda:{self._visible(device_index)}"

    def current_device_name(self):
        return f"cuda:{torch.cuda.current_device()}"

    def device(self, device_index=None):
        return torch.cuda.device(self._visible(device_index))

    def set_device(self, device_index):
        torch.cuda.set_device(self._visible(device_index))

    def communication_backend_name(self):
        return "nccl"

    def synchronize(self, device_index=None):
        torch.cuda.synchronize(self._visible(device_index))

    def _visible(self, index):
        return index % torch.cuda.device_count() if isinstance(index, int) else index

    def __getattr__(self, name):
        return getattr(torch.cuda, name) if name in self._AS_IN_TORCH else super().__getattr__(name)


_accelerators = {"cpu": _Cpu(), "cuda": _Cuda()}


def get_accelerator():
    return _accelerators[device_type()]
