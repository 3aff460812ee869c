"""Groups of ranks: data parallelism spans all ranks, or those of a stage of a pipeline."""

from zerocore import ranks as _ranks
from zerocore.distributed import process_group as _process_group

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


def get_data_parallel_world_size():
    return _ranks().data_size


def get_data_parallel_rank():
    return _ranks().data_rank


def get_data_parallel_group():
    return _process_group(_ranks())


def get_model_parallel_world_size():
    """Returns 1: there is no model parallelism."""
    return 1


def get_model_parallel_rank():
    return 0


_get_sequence_parallel_world_size, _get_sequence_parallel_rank = get_model_parallel_world_size, get_model_parallel_rank
_get_sequence_data_parallel_world_size, _get_sequence_data_parallel_rank = get_data_parallel_world_size, get_data_parallel_rank
_get_sequence_data_parallel_group = get_world_group = get_data_parallel_group
get_world_size, get_world_rank = get_data_parallel_world_size, get_data_parallel_rank
_get_data_parallel_world_size, _get_data_parallel_rank = get_data_parallel_world_size, get_data_parallel_rank
_get_data_parallel_group = get_data_parallel_group
get_tensor_model_parallel_world_size, get_tensor_model_parallel_rank = get_model_parallel_world_size, get_model_parallel_rank
