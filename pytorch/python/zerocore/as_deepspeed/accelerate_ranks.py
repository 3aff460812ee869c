"""Accelerate's view of the ranks, and of the package deepspeed, however a script was started."""

import os

from zerocore_startup import put

from .. import distributed, launch
from ..wrapping import replaces
from .accelerate_files import use_fsdp_environment


def see_cpu_ranks(state):
    """Lets accelerate find CPU ranks. Whether DeepSpeed is requested may become known after its first state."""

    @replaces(state.PartialState, "_prepare_backend")
    def prepare_backend(self, own, *args, **kwargs):
        if launch.by_mpi():
            distributed.export_ranks()  # accelerate reads torchrun's variables
        use_fsdp_environment()
        backend, kind = own(self, *args, **kwargs)
        by_deepspeed = os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true"
        if backend is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            backend = "gloo"
            if not by_deepspeed:
                kind = state.DistributedType.MULTI_CPU
        elif backend is None and by_deepspeed and "RANK" in os.environ:
            backend = "gloo"
        return backend, kind


def complete(module):
    """Gives accelerate's wrappers to a module that leaves them out, because it was imported when no deepspeed was found."""
    from accelerate.utils import deepspeed as wrappers
    for name, value in vars(wrappers).items():
        if getattr(value, "__module__", "") == wrappers.__name__ and not hasattr(module, name):
            put(module, name, value)
