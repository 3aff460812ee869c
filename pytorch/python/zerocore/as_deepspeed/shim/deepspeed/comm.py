"""deepspeed.comm: torch.distributed's functions, which scripts use for their own values."""

import sys

import zerocore.comm
from zerocore.comm import *  # noqa: F403

from ._missing import refuse_missing

_missing = refuse_missing(__name__)


def __getattr__(name):
    try:
        return getattr(zerocore.comm, name)
    except AttributeError:
        return _missing(name)


sys.modules[__name__ + ".comm"] = sys.modules[__name__]  # deepspeed.comm.comm
