"""deepspeed.comm: torch.distributed's functions, which scripts use for their own values."""

import os
import sys

import torch.distributed
from torch.distributed import (  # noqa: F401
    ReduceOp, all_gather, all_gather_object, all_reduce, barrier, broadcast, broadcast_object_list, gather, get_rank,
    get_world_size, is_initialized, new_group, reduce, scatter,
)
from zerocore.distributed import init_distributed  # noqa: F401

from ._missing import refuse_missing

_missing = refuse_missing(__name__)


def __getattr__(name):
    """Returns all other names of torch.distributed."""
    if not name.startswith("_") and hasattr(torch.distributed, name):
        return getattr(torch.distributed, name)
    return _missing(name)


def get_local_rank():
    return int(os.environ["LOCAL_RANK"])


sys.modules[__name__ + ".comm"] = sys.modules[__name__]  # deepspeed.comm.comm
