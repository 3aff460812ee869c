from zerocore.zero import GatheredParameters, Init  # noqa: F401

from ._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


def register_external_parameter(module, parameter):
    """Uses of parameters are seen wherever they happen."""


def unregister_external_parameter(module, parameter):
    """As above."""
