from ..._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


def is_zero_param(parameter):
    """Returns whether an engine manages the parameter."""
    return hasattr(parameter, "ds_id")
