from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)
VALID_LR_SCHEDULES = ["LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"]
