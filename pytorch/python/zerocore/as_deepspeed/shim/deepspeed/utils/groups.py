"""Groups of ranks: data parallelism spans all ranks, or those of a stage of a pipeline."""

import torch.distributed as _dist
from zerocore import UsageError as _UsageError
from zerocore import ranks as _ranks

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


def get_data_parallel_world_size():
    return _ranks().data_size


def get_data_parallel_rank():
    return _ranks().data_rank


def get_data_parallel_group():
    if _ranks().stages > 1:
        raise _UsageError("get_data_parallel_group: the stages of a pipeline have no groups of torch.distributed; the engine sums "
                          "gradients, and engine.grid says where a rank is")
    return _dist.group.WORLD


def get_model_parallel_world_size():
    """Returns 1: there is no model parallelism."""
    return 1


def get_model_parallel_rank():
    return 0


_get_data_parallel_world_size, _get_data_parallel_rank = get_data_parallel_world_size, get_data_parallel_rank
_get_data_parallel_group = get_data_parallel_group
get_tensor_model_parallel_world_size, get_tensor_model_parallel_rank = get_model_parallel_world_size, get_model_parallel_rank
