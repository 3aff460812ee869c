from zerocore.optimizers import EngineOptimizer as DeepSpeedOptimizer  # noqa: F401

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)
