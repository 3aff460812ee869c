"""deepspeed.zero, which is also deepspeed.runtime.zero."""

import contextlib

from zerocore.construction import ZeroParamStatus  # noqa: F401
from zerocore.zero import GatheredParameters
from zerocore.zero import Init as _Init

from ._missing import refuse_missing
from .comm import init_distributed

__getattr__ = refuse_missing(__name__)


class Init(_Init):
    def __init__(self, *args, **kwargs):
        init_distributed()  # transformers reads its rank from torch.distributed after this
        super().__init__(*args, **kwargs)


def register_external_parameter(module, parameter):
    """Does nothing: the engine notices every use of a parameter."""


def unregister_external_parameter(module, parameter):
    """Does nothing: the engine notices every use of a parameter."""


@contextlib.contextmanager
def unwrap_model_for_generation(model):
    """Returns the module with all its parameters whole, inside the block."""
    module = getattr(model, "module", model)
    with GatheredParameters(module.parameters()):
        yield module
