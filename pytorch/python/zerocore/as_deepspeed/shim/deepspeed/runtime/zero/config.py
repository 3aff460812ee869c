import enum

from ..._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


class ZeroStageEnum(enum.IntEnum):
    disabled = 0
    optimizer_states = 1
    gradients = 2
    weights = 3
    max_stage = 3
