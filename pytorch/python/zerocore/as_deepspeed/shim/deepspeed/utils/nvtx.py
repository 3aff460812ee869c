from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


def instrument_w_nvtx(function):
    """The function itself: torch.profiler sees it."""
    return function
