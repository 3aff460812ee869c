"""DeepSpeed's schedule classes, which set the rates of an optimizer to the values that the config's schedules compute."""

import json

from zerocore import _native

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)
VALID_LR_SCHEDULES = ["LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"]


class _Schedule:
    """`options`: the keys of scheduler.params. Those in _BY_GROUP may be lists with one value per parameter group."""

    _BY_GROUP = ()

    def __init__(self, optimizer, last_batch_iteration, options):
        if not hasattr(optimizer, "param_groups"):
            raise TypeError(f"{type(self).__name__}: {type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        self.last_batch_iteration = last_batch_iteration
        self._begun = last_batch_iteration
        self._settings = [self._settings_of(index, options) for index in range(len(optimizer.param_groups))]
        if last_batch_iteration == -1:
            self._write()
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    def _settings_of(self, index, options):
        params = {"last_batch_iteration": self._begun}
        for key, value in options.items():
            if isinstance(value, (list, tuple)) and key in self._BY_GROUP:
                if len(value) != len(self.optimizer.param_groups):
                    raise ValueError(f"{type(self).__name__}: {key} has {len(value)} values, and the optimizer "
                                     f"{len(self.optimizer.param_groups)} groups")
                value = value[index]
            if value is not None:
                params[key] = value
        rate = float(self.optimizer.param_groups[index]["lr"])
        document = {"train_micro_batch_size_per_gpu": 1, "scheduler": {"type": type(self)._TYPE, "params": params},
                    "optimizer": {"type": "AdamW", "params": {"lr": rate}}}
        return _native.Config.of_text(json.dumps(document), type(self).__name__)

    def _write(self):
        step = self.last_batch_iteration - self._begun + 1
        for group, settings in zip(self.optimizer.param_groups, self._settings):
            rate, betas = settings.scheduled(step)
            if hasattr(group["lr"], "fill_"):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
            if betas is not None and "betas" in group:
                group["betas"] = betas
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def step(self, last_batch_iteration=None):
        """Call it after each step of the optimizer."""
        self.last_batch_iteration = self.last_batch_iteration + 1 if last_batch_iteration is None else last_batch_iteration
        self._write()

    def get_lr(self):
        step = self.last_batch_iteration - self._begun + 1
        return [settings.scheduled(step)[0] for settings in self._settings]

    def get_last_lr(self):
        return self._last_lr

    def state_dict(self):
        return {"last_batch_iteration": self.last_batch_iteration}

    def load_state_dict(self, sd):
        self.last_batch_iteration = sd["last_batch_iteration"]
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]


class WarmupLR(_Schedule):
    _TYPE, _BY_GROUP = "WarmupLR", ("warmup_min_lr", "warmup_max_lr")

    def __init__(self, optimizer, warmup_min_lr=0.0, warmup_max_lr=None, warmup_num_steps=1000, warmup_type="log",
                 last_batch_iteration=-1):
        super().__init__(optimizer, last_batch_iteration, {
            "warmup_min_lr": warmup_min_lr, "warmup_max_lr": warmup_max_lr, "warmup_num_steps": warmup_num_steps,
            "warmup_type": warmup_type})


class WarmupDecayLR(_Schedule):
    _TYPE, _BY_GROUP = "WarmupDecayLR", ("warmup_min_lr", "warmup_max_lr")

    def __init__(self, optimizer, total_num_steps, warmup_min_lr=0.0, warmup_max_lr=0.001, warmup_num_steps=1000,
                 warmup_type="log", last_batch_iteration=-1):
        super().__init__(optimizer, last_batch_iteration, {
            "total_num_steps": total_num_steps, "warmup_min_lr": warmup_min_lr, "warmup_max_lr": warmup_max_lr,
            "warmup_num_steps": warmup_num_steps, "warmup_type": warmup_type})


class WarmupCosineLR(_Schedule):
    _TYPE = "WarmupCosineLR"

    def __init__(self, optimizer, total_num_steps, warmup_min_ratio=0.0, warmup_num_steps=1000, cos_min_ratio=0.0001,
                 warmup_type="log", last_batch_iteration=-1):
        super().__init__(optimizer, last_batch_iteration, {
            "total_num_steps": total_num_steps, "warmup_min_ratio": warmup_min_ratio, "warmup_num_steps": warmup_num_steps,
            "cos_min_ratio": cos_min_ratio, "warmup_type": warmup_type})


class LRRangeTest(_Schedule):
    _TYPE, _BY_GROUP = "LRRangeTest", ("lr_range_test_min_lr",)

    def __init__(self, optimizer, lr_range_test_min_lr=1e-3, lr_range_test_step_size=2000, lr_range_test_step_rate=1.0,
                 lr_range_test_staircase=False, last_batch_iteration=-1):
        super().__init__(optimizer, last_batch_iteration, {
            "lr_range_test_min_lr": lr_range_test_min_lr, "lr_range_test_step_size": lr_range_test_step_size,
            "lr_range_test_step_rate": lr_range_test_step_rate, "lr_range_test_staircase": lr_range_test_staircase})


class OneCycle(_Schedule):
    _TYPE, _BY_GROUP = "OneCycle", ("cycle_min_lr", "cycle_max_lr")

    def __init__(self, optimizer, cycle_min_lr, cycle_max_lr, decay_lr_rate=0.0, cycle_first_step_size=2000,
                 cycle_second_step_size=None, cycle_first_stair_count=0, cycle_second_stair_count=None, decay_step_size=0,
                 cycle_momentum=True, cycle_min_mom=0.8, cycle_max_mom=0.9, decay_mom_rate=0.0, last_batch_iteration=-1):
        super().__init__(optimizer, last_batch_iteration, {
            "cycle_min_lr": cycle_min_lr, "cycle_max_lr": cycle_max_lr, "decay_lr_rate": decay_lr_rate,
            "cycle_first_step_size": cycle_first_step_size, "cycle_second_step_size": cycle_second_step_size,
            "cycle_first_stair_count": cycle_first_stair_count, "cycle_second_stair_count": cycle_second_stair_count,
            "decay_step_size": decay_step_size, "cycle_momentum": cycle_momentum, "cycle_min_mom": cycle_min_mom,
            "cycle_max_mom": cycle_max_mom, "decay_mom_rate": decay_mom_rate})
