"""DeepSpeed's schedule classes, and its names of their options."""

from zerocore.schedules import CLASSES, LRRangeTest, OneCycle, WarmupCosineLR, WarmupDecayLR, WarmupLR  # noqa: F401

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)
VALID_LR_SCHEDULES = list(CLASSES)
LR_SCHEDULE = "lr_schedule"
LR_RANGE_TEST, ONE_CYCLE, WARMUP_LR, WARMUP_DECAY_LR, WARMUP_COSINE_LR = VALID_LR_SCHEDULES
WARMUP_LOG_RATE, WARMUP_LINEAR_RATE = "log", "linear"
for _key in (
        "lr_range_test_min_lr", "lr_range_test_step_rate", "lr_range_test_step_size", "lr_range_test_staircase",
        "cycle_first_step_size", "cycle_first_stair_count", "cycle_second_step_size", "cycle_second_stair_count",
        "decay_step_size", "cycle_min_lr", "cycle_max_lr", "decay_lr_rate", "cycle_min_mom", "cycle_max_mom", "decay_mom_rate",
        "warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", "warmup_min_ratio", "cos_min_ratio",
        "total_num_steps"):
    globals()[_key.upper()] = _key
