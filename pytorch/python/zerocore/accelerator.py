"""The device of the ranks, a GPU or the CPU, with the methods of DeepSpeed's accelerators."""

import contextlib
import os

import torch

from .ranks import device_type


class _Accelerator:
    """The names that both devices have."""

    FloatTensor, HalfTensor, BFloat16Tensor = torch.FloatTensor, torch.HalfTensor, torch.BFloat16Tensor
    LongTensor, IntTensor, ByteTensor, DoubleTensor = torch.LongTensor, torch.IntTensor, torch.ByteTensor, torch.DoubleTensor

    def is_available(self):
        return True

    def is_fp16_supported(self):
        return True

    def supported_dtypes(self):
        return [torch.float32, torch.float16, *([torch.bfloat16] if self.is_bf16_supported() else [])]

    def random(self):
        return torch.random

    def on_accelerator(self, tensor):
        return tensor.device.type == self._name

    def is_synchronized_device(self):
        """Returns whether kernels are done when their call returns."""
        return self._name == "cpu"

    use_host_timers = resolves_data_dependency = handles_memory_backpressure = is_synchronized_device

    def pin_memory(self, tensor, make_copy=True, match_shape=True):
        return tensor.pin_memory() if self._name == "cuda" else tensor

    def is_pinned(self, tensor):
        return tensor.is_pinned() if self._name == "cuda" else False

    def lazy_call(self, callback):
        return callback()

    def range_push(self, msg, domain=None, category=None):
        """Does nothing: torch.profiler records functions without a range of their own."""

    def range_pop(self, domain=None):
        """Does nothing."""

    def __getattr__(self, name):
        raise AttributeError(name if name.startswith("__") else
                             f"get_accelerator().{name}: zerocore does not have this name of DeepSpeed")


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

    def initial_seed(self):
        return torch.initial_seed()

    def get_rng_state(self, device_index=None):
        return torch.get_rng_state()

    def set_rng_state(self, new_state, device_index=None):
        torch.set_rng_state(new_state)

    def default_generator(self, device_index):
        return torch.default_generator

    # There are no streams: kernels run on the thread that calls them.

    Stream = Event = None

    def stream(self, stream):
        return contextlib.nullcontext()

    def current_stream(self, device_index=None):
        """Returns None."""

    default_stream = current_stream

    # As in DeepSpeed, memory is that of the process, in bytes.

    def memory_allocated(self, device_index=None):
        return _status("VmRSS")

    memory_reserved = memory_cached = memory_allocated

    def max_memory_allocated(self, device_index=None):
        return _status("VmHWM")

    max_memory_reserved = max_memory_cached = max_memory_allocated

    def reset_peak_memory_stats(self, device_index=None):
        """Begins the peak anew, where the kernel allows it."""
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")

    reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats

    def memory_stats(self, device_index=None):
        return {"allocated_bytes.all.current": self.memory_allocated(), "allocated_bytes.all.peak": self.max_memory_allocated()}

    def total_memory(self, device_index=None):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def available_memory(self, device_index=None):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _status(key):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(f"{key}:"))


class _Cuda(_Accelerator):
    """GPUs by their numbers among the visible ones. As for the ranks, a larger number begins again at the first GPU: a rank may
    see its own GPU alone."""

    _name = "cuda"
    _AS_IN_TORCH = {
        "Event", "Stream", "current_device", "current_stream", "default_stream", "device_count", "empty_cache", "get_rng_state",
        "initial_seed", "is_bf16_supported", "manual_seed", "manual_seed_all", "max_memory_allocated", "max_memory_cached",
        "max_memory_reserved", "memory_allocated", "memory_cached", "memory_reserved", "memory_stats",
        "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats", "set_rng_state", "stream"}

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

    def total_memory(self, device_index=None):
        return torch.cuda.get_device_properties(self._visible(device_index)).total_memory

    def available_memory(self, device_index=None):
        return torch.cuda.mem_get_info(self._visible(device_index))[0]

    def _visible(self, index):
        return index % torch.cuda.device_count() if isinstance(index, int) else index

    def default_generator(self, device_index):
        return torch.cuda.default_generators[self._visible(device_index)]

    def __getattr__(self, name):
        return getattr(torch.cuda, name) if name in self._AS_IN_TORCH else super().__getattr__(name)


_accelerators = {"cpu": _Cpu(), "cuda": _Cuda()}


def get_accelerator():
    """Returns the accelerator of the ranks' device: "cpu" or "cuda"."""
    return _accelerators[device_type()]
