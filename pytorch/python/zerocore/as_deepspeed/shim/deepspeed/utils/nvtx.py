from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


def instrument_w_nvtx(function):
    """Returns the function unchanged: torch.profiler records it without a range of its own."""
    return function
