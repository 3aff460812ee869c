"""Groups of ranks: data parallelism spans all ranks."""

import torch.distributed as _dist

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


def get_data_parallel_world_size():
    return _dist.get_world_size()


def get_data_parallel_rank():
    return _dist.get_rank()


def get_data_parallel_group():
    return _dist.group.WORLD


def get_model_parallel_world_size():
    """Returns 1: there is no model parallelism."""
    return 1


def get_model_parallel_rank():
    return 0


_get_data_parallel_world_size, _get_data_parallel_rank = get_data_parallel_world_size, get_data_parallel_rank
_get_data_parallel_group = get_data_parallel_group
get_tensor_model_parallel_world_size, get_tensor_model_parallel_rank = get_model_parallel_world_size, get_model_parallel_rank
