"""Groups of ranks: data parallelism spans all ranks."""

import torch.distributed as _dist

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


def _get_data_parallel_world_size():
    return _dist.get_world_size()


def _get_data_parallel_rank():
    return _dist.get_rank()


def _get_data_parallel_group():
    return _dist.group.WORLD
