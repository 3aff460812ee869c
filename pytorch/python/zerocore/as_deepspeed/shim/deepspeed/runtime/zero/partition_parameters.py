from zerocore.zero import GatheredParameters, Init, ZeroParamStatus  # noqa: F401

from ..._missing import refuse_missing

__getattr__ = refuse_missing(__name__)
