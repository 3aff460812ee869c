"""DeepSpeed's names over ZeroCore's engine; see zerocore.as_deepspeed."""

from zerocore import Engine as DeepSpeedEngine
from zerocore import initialize
from zerocore.as_deepspeed import VERSION as __version__

from . import accelerator, checkpoint, comm, ops, runtime, utils, zero
from ._missing import refuse_missing
from .accelerator import get_accelerator
from .comm import init_distributed

__getattr__ = refuse_missing(__name__)


def add_config_arguments(parser):
    group = parser.add_argument_group("DeepSpeed", "DeepSpeed configurations")
    group.add_argument("--deepspeed", default=False, action="store_true", help="use the engine")
    group.add_argument("--deepspeed_config", default=None, type=str, help="the config, a JSON file")
    return parser
