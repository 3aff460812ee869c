"""DeepSpeed's names over ZeroCore's engine; see zerocore.as_deepspeed."""

import functools as _functools
import sys as _sys

import zerocore as _zerocore
from zerocore import Engine as DeepSpeedEngine
from zerocore import add_config_arguments
from zerocore.as_deepspeed import VERSION as __version__

from . import accelerator, checkpoint, comm, launcher, ops, runtime, utils, zero
from ._missing import refuse_missing
from .accelerator import get_accelerator
from .comm import init_distributed
from .runtime.activation_checkpointing import checkpointing
from .runtime.base_optimizer import DeepSpeedOptimizer
from .utils import OnDevice, log_dist, logger

version = __version__
_sys.modules[__name__ + ".checkpointing"] = checkpointing

__getattr__ = refuse_missing(__name__)


@_functools.wraps(_zerocore.initialize)
def initialize(*args, **kwargs):
    init_distributed()  # scripts ask torch.distributed for their rank from here on
    return _zerocore.initialize(*args, **kwargs)
