"""torch.distributed's functions under the name that DeepSpeed's scripts know: zerocore.comm."""

import os

import torch.distributed
from torch.distributed import (
    ReduceOp, all_gather, all_gather_object, all_reduce, barrier, broadcast, broadcast_object_list, gather, get_rank,
    get_world_size, is_initialized, new_group, reduce, scatter,
)

from .distributed import init_distributed

__all__ = [
    "ReduceOp", "all_gather", "all_gather_object", "all_reduce", "barrier", "broadcast", "broadcast_object_list", "gather",
    "get_local_rank", "get_rank", "get_world_size", "init_distributed", "is_initialized", "new_group", "reduce", "scatter",
]


def get_local_rank():
    """Returns this rank's number on its node, by the launcher's LOCAL_RANK; KeyError without a launcher."""
    return int(os.environ["LOCAL_RANK"])


def __getattr__(name):
    """Returns all other names of torch.distributed."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(torch.distributed, name)
