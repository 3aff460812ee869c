"""deepspeed.accelerator: the device of the ranks, a GPU or the CPU."""

from zerocore.accelerator import get_accelerator  # noqa: F401

from ._missing import also_named, refuse_missing

__getattr__ = refuse_missing(__name__)
also_named(__name__, f"{__name__}.real_accelerator")
