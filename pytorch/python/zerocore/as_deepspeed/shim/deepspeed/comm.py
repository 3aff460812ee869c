"""deepspeed.comm: torch.distributed's functions, which scripts use for their own values."""

import os

import torch.distributed as _dist
from torch.distributed import (  # noqa: F401
    ReduceOp, all_gather, all_gather_object, all_reduce, barrier, broadcast, broadcast_object_list, gather, get_rank,
    get_world_size, is_initialized, new_group, reduce, scatter,
)

from ._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


def init_distributed(dist_backend=None, auto_mpi_discovery=True, distributed_port=None, verbose=True, timeout=None,
                     init_method=None, dist_init_required=None, config=None, rank=-1, world_size=-1):
    """A gloo group, whatever the backend that is named: the ranks are CPU ranks."""
    if not _dist.is_initialized():
        more = {} if timeout is None else {"timeout": timeout}
        _dist.init_process_group("gloo", **more)


def get_local_rank():
    return int(os.environ["LOCAL_RANK"])
