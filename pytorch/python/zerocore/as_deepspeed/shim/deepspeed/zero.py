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
        init_distributed()  # transformers asks torch.distributed for its rank from here on
        super().__init__(*args, **kwargs)


def register_external_parameter(module, parameter):
    """Uses of parameters are seen wherever they happen."""


def unregister_external_parameter(module, parameter):
    """As above."""


@contextlib.contextmanager
def unwrap_model_for_generation(model):
    """The module with all its parameters whole."""
    module = getattr(model, "module", model)
    with GatheredParameters(module.parameters()):
        yield module
