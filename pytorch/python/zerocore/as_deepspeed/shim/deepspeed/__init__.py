"""DeepSpeed's names over ZeroCore's engine; see zerocore.as_deepspeed."""

import functools as _functools
import sys as _sys

import zerocore as _zerocore
import zerocore_startup as _startup
from zerocore import ConfigError as DeepSpeedConfigError
from zerocore import Engine as DeepSpeedEngine
from zerocore import add_config_arguments
from zerocore.as_deepspeed import VERSION as __version__
from zerocore.as_deepspeed.accelerate_files import BY_FSDP as _BY_FSDP

_startup.install()

from . import accelerator, checkpoint, comm, launcher, ops, pipe, runtime, utils, zero
from ._missing import refuse_missing
from .accelerator import get_accelerator
from .comm import init_distributed
from .runtime.activation_checkpointing import checkpointing
from .runtime.base_optimizer import DeepSpeedOptimizer
from .runtime.pipe.engine import PipelineEngine
from .runtime.pipe.module import PipelineModule
from .utils import OnDevice, log_dist, logger

version = __version__
__version_major__, __version_minor__, __version_patch__ = map(int, __version__.split("."))
__git_hash__ = __git_branch__ = "zerocore"
_sys.modules[__name__ + ".checkpointing"] = checkpointing

__getattr__ = refuse_missing(__name__)


@_functools.wraps(_zerocore.initialize)
def initialize(*args, **kwargs):
    init_distributed()  # scripts read their rank from torch.distributed after this
    for name in ("config", "config_params"):
        if isinstance(kwargs.get(name), dict):
            kwargs[name] = _without_paths(kwargs[name])
    return _zerocore.initialize(*args, **kwargs)


def _without_paths(config):
    """Accepts TRL's config for a reference model: it has keys like "zero_optimization.reduce_bucket_size", which
    DeepSpeed ignores."""
    paths = [key for key in config if isinstance(key, str) and key.startswith("zero_optimization.")]
    config = {key: value for key, value in config.items() if key != _BY_FSDP}
    for key in paths:
        if _zerocore.ranks().rank == 0:
            print(f"zero: {key}: has no effect as one key; it belongs into zero_optimization", flush=True)
    return {key: value for key, value in config.items() if key not in paths}
