"""DeepSpeed's schedules. The library computes their values; the classes write them into the groups of an optimizer, and
ConfigSchedule is the config's own one, which the engine applies."""

import functools
import json
import weakref

from . import _native
from .ranks import ranks

class Schedule:
    """`optimizer`: one with groups, or a wrapper with such an `optimizer`. `options`: the keys of scheduler.params.
    Those in _BY_GROUP may be lists with one value per parameter group, and are attributes under the names of _LISTS.
    Raises ValueError for impossible options."""

    _TYPE, _BY_GROUP, _LISTS = "", (), {}
    _MAY_BE_NONE = ("warmup_max_lr", "cycle_second_step_size", "cycle_second_stair_count")

    def __init__(self, optimizer, last_batch_iteration, options):
        if not hasattr(optimizer, "param_groups"):
            optimizer = getattr(optimizer, "optimizer", optimizer)
        if not hasattr(optimizer, "param_groups"):
            raise TypeError(f"{self._TYPE}: {type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        self.last_batch_iteration = self._begun = last_batch_iteration
        self._options = [self._options_of(index, options) for index in range(len(optimizer.param_groups))]
        self._settings = [self._settings_of(group["lr"], own) for group, own in zip(optimizer.param_groups, self._options)]
        if last_batch_iteration == -1:
            self._write()
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    def _options_of(self, index, options):
        own = {"last_batch_iteration": self._begun}
        for key, value in options.items():
            if isinstance(value, (list, tuple)) and key in self._BY_GROUP:
                if len(value) != len(self.optimizer.param_groups):
                    raise ValueError(f"{self._TYPE}: {key} has {len(value)} values, and the optimizer "
                                     f"{len(self.optimizer.param_groups)} groups")
                value = value[index]
            if value is not None:
                own[key] = value
            elif key not in self._MAY_BE_NONE:
                raise ValueError(f"{self._TYPE}: {key} is None; expected a number")
        return own

    def _settings_of(self, rate, own):
        document = {"train_micro_batch_size_per_gpu": 1, "scheduler": {"type": self._TYPE, "params": own},
                    "optimizer": {"type": "AdamW", "params": {"lr": float(rate)}}}
        try:
            settings = _native.Config.of_text(json.dumps(document), self._TYPE)
            settings.scheduled(1)
        except _native.ConfigError as error:
            raise ValueError(str(error)) from None
        return settings

    def __getattr__(self, name):
        """Returns an option by its name in DeepSpeed: a list for those that may differ by group."""
        if name.startswith("_"):
            raise AttributeError(name)
        key = self._LISTS.get(name, name)
        if key not in self._options[0]:
            raise AttributeError(f"{self._TYPE} has no attribute {name!r}")
        return [own[key] for own in self._options] if name in self._LISTS else self._options[0][key]

    def _values(self):
        """Returns (rate, betas or None) of each group, in the step that comes next."""
        step = self.last_batch_iteration - self._begun + 1
        return [settings.scheduled(step) for settings in self._settings]

    def _write(self):
        for group, (rate, betas) in zip(self.optimizer.param_groups, self._values()):
            if hasattr(group["lr"], "fill_"):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
            if betas is not None and "betas" in group:
                group["betas"] = betas
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def step(self, last_batch_iteration=None):
        """Call it after each step of the optimizer; with a number, it goes to that iteration, counted from 0."""
        self.last_batch_iteration = self.last_batch_iteration + 1 if last_batch_iteration is None else last_batch_iteration
        self._write()

    def get_lr(self):
        """Returns the rate of each group for the next step."""
        return [rate for rate, _ in self._values()]

    def get_last_lr(self):
        """Returns the rates that were written last."""
        return self._last_lr

    def state_dict(self):
        """Returns the argument of load_state_dict()."""
        return {"last_batch_iteration": self.last_batch_iteration}

    def load_state_dict(self, sd):
        """Goes to the iteration of the state; the groups keep their rates until the next step()."""
        self.last_batch_iteration = sd["last_batch_iteration"]
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]


def _say(notice):
    if ranks().rank == 0:
        print(f"zero: {notice}", flush=True)


def _warmup_type(kind, given):
    if given in ("log", "linear"):
        return given
    _say(f"{kind}: warmup_type {given!r} is unknown: the rate rises as for log")
    return "log"


class WarmupLR(Schedule):
    """Rises from warmup_min_lr to warmup_max_lr in warmup_num_steps steps, and stays there."""

    _TYPE, _BY_GROUP = "WarmupLR", ("warmup_min_lr", "warmup_max_lr")
    _LISTS = {"min_lrs": "warmup_min_lr", "max_lrs": "warmup_max_lr"}

    def __init__(self, optimizer, warmup_min_lr=0.0, warmup_max_lr=None, warmup_num_steps=1000, warmup_type="log",
                 last_batch_iteration=-1):
        if warmup_max_lr is None:  # each group's own
            warmup_max_lr = [float(group["lr"]) for group in getattr(optimizer, "param_groups", ())] or None
        super().__init__(optimizer, last_batch_iteration, {
            "warmup_min_lr": warmup_min_lr, "warmup_max_lr": warmup_max_lr, "warmup_num_steps": warmup_num_steps,
            "warmup_type": _warmup_type(self._TYPE, warmup_type)})


class WarmupDecayLR(WarmupLR):
    """Rises as WarmupLR does, and falls to 0 until step total_num_steps."""

    _TYPE = "WarmupDecayLR"

    def __init__(self, optimizer, total_num_steps, warmup_min_lr=0.0, warmup_max_lr=0.001, warmup_num_steps=1000,
                 warmup_type="log", last_batch_iteration=-1):
        Schedule.__init__(self, optimizer, last_batch_iteration, {
            "total_num_steps": total_num_steps, "warmup_min_lr": warmup_min_lr, "warmup_max_lr": warmup_max_lr,
            "warmup_num_steps": warmup_num_steps, "warmup_type": _warmup_type(self._TYPE, warmup_type)})


class WarmupCosineLR(Schedule):
    """Rises to each group's own rate, and falls in a cosine to cos_min_ratio of that rate."""

    _TYPE = "WarmupCosineLR"

    def __init__(self, optimizer, total_num_steps, warmup_min_ratio=0.0, warmup_num_steps=1000, cos_min_ratio=0.0001,
                 warmup_type="log", last_batch_iteration=-1):
        super().__init__(optimizer, last_batch_iteration, {
            "total_num_steps": total_num_steps, "warmup_min_ratio": warmup_min_ratio, "warmup_num_steps": warmup_num_steps,
            "cos_min_ratio": cos_min_ratio, "warmup_type": _warmup_type(self._TYPE, warmup_type)})

    def get_lr_ratio(self):
        """Returns the share of each group's own rate."""
        return self._settings_of(1.0, self._options[0]).scheduled(self.last_batch_iteration - self._begun + 1)[0]


class _ByBatch(Schedule):
    """DeepSpeed names the argument of these step() functions otherwise."""

    def step(self, batch_iteration=None):
        super().step(batch_iteration)


class LRRangeTest(_ByBatch):
    """Rises without an end, by lr_range_test_step_rate of lr_range_test_min_lr in each lr_range_test_step_size steps."""

    _TYPE, _BY_GROUP, _LISTS = "LRRangeTest", ("lr_range_test_min_lr",), {"min_lr": "lr_range_test_min_lr"}

    def __init__(self, optimizer, lr_range_test_min_lr=1e-3, lr_range_test_step_size=2000, lr_range_test_step_rate=1.0,
                 lr_range_test_staircase=False, last_batch_iteration=-1):
        super().__init__(optimizer, last_batch_iteration, {
            "lr_range_test_min_lr": lr_range_test_min_lr, "lr_range_test_step_size": lr_range_test_step_size,
            "lr_range_test_step_rate": lr_range_test_step_rate, "lr_range_test_staircase": lr_range_test_staircase})


class OneCycle(_ByBatch):
    """Rises from cycle_min_lr to cycle_max_lr and falls back; betas move the other way. Then both decay."""

    _TYPE = "OneCycle"
    _BY_GROUP = ("cycle_min_lr", "cycle_max_lr", "cycle_min_mom", "cycle_max_mom")
    _LISTS = {"min_lrs": "cycle_min_lr", "max_lrs": "cycle_max_lr"}

    def __init__(self, optimizer, cycle_min_lr, cycle_max_lr, decay_lr_rate=0.0, cycle_first_step_size=2000,
                 cycle_second_step_size=None, cycle_first_stair_count=0, cycle_second_stair_count=None, decay_step_size=0,
                 cycle_momentum=True, cycle_min_mom=0.8, cycle_max_mom=0.9, decay_mom_rate=0.0, last_batch_iteration=-1):
        if cycle_momentum and not _has_betas(optimizer):
            _say(f"OneCycle: cycle_momentum has no effect, as {type(optimizer).__name__} has no betas")
            cycle_momentum = False
        super().__init__(optimizer, last_batch_iteration, {
            "cycle_min_lr": cycle_min_lr, "cycle_max_lr": cycle_max_lr, "decay_lr_rate": decay_lr_rate,
            "cycle_first_step_size": cycle_first_step_size, "cycle_second_step_size": cycle_second_step_size,
            "cycle_first_stair_count": cycle_first_stair_count, "cycle_second_stair_count": cycle_second_stair_count,
            "decay_step_size": decay_step_size, "cycle_momentum": cycle_momentum, "cycle_min_mom": cycle_min_mom,
            "cycle_max_mom": cycle_max_mom, "decay_mom_rate": decay_mom_rate})

    @property
    def total_size(self):
        """The number of steps of a cycle."""
        return self.cycle_first_step_size + self._options[0].get("cycle_second_step_size", self.cycle_first_step_size)

    @property
    def step_ratio(self):
        """The share of the first half in a cycle."""
        return self.cycle_first_step_size / self.total_size

    def get_mom(self):
        """Returns the betas of each group; None without cycle_momentum. Before the first step they are those of the
        cycle's beginning, as in DeepSpeed, whose first step takes those of its middle."""
        return _momentum(self._options, self._values(), self.last_batch_iteration == -1)


def _has_betas(optimizer):
    return "betas" in getattr(optimizer, "defaults", ()) or "betas" in getattr(getattr(optimizer, "optimizer", None), "defaults", ())


def _momentum(options, values, before_first):
    if not options[0].get("cycle_momentum", True):
        return None
    if before_first:
        return [(own.get("cycle_max_mom", 0.9), 0.99) for own in options]
    return [betas for _, betas in values]


CLASSES = {cls._TYPE: cls for cls in (LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR, WarmupCosineLR)}


class ConfigSchedule:
    """The config's schedule, which the engine applies; of_config() makes one, which is of DeepSpeed's class too. It counts
    the engine's steps, and those that the program takes by step()."""

    def __init__(self, engine, settings, options):
        self._engine = weakref.ref(engine)
        self._config = settings
        self._options = [options]

    @property
    def optimizer(self):
        """The engine's optimizer."""
        return self._engine().optimizer

    @property
    def last_batch_iteration(self):
        """The number of steps that were taken, less one: -1 before the first."""
        return self._engine().native.applied_steps() + self.optimizer.ahead - 1

    def step(self, *iteration, **named):
        """Takes a step in addition to those that engine.step() takes, or goes to an iteration, counted from 0. Without
        effect for a program that has taken the schedule from the engine (engine.lr_scheduler = None) to step it itself."""
        engine = self._engine()
        number = next((number for number in [*iteration, *named.values()] if number is not None), None)
        if number is not None:
            self.go_to(number)
        elif engine.lr_scheduler is self:
            self.go_to(self.last_batch_iteration + 1)

    def go_to(self, iteration):
        """Lets the next step have the rate after this iteration."""
        if iteration != self.last_batch_iteration:
            self.optimizer.ahead += iteration - self.last_batch_iteration
            self.optimizer.follow(self._engine().native)

    def get_last_lr(self):
        """Returns the learning rate of each group for the next step."""
        return self._engine().get_lr()

    get_lr = get_last_lr

    def get_mom(self):
        """Returns the betas of each group, as OneCycle.get_mom() does; other schedules have no such attribute."""
        if self._TYPE != "OneCycle":
            raise AttributeError(f"{self._TYPE} has no attribute 'get_mom'")
        groups = self.optimizer.param_groups
        value = self._config.scheduled(self.last_batch_iteration + 2)
        return _momentum(self._options * len(groups), [value] * len(groups), self.last_batch_iteration == -1)

    def state_dict(self):
        """Returns the argument of load_state_dict()."""
        return {"last_batch_iteration": self.last_batch_iteration}

    def load_state_dict(self, state):
        """Goes to the iteration of the state; one of an earlier version of zerocore has none, and changes nothing."""
        self.go_to(state.get("last_batch_iteration", self.last_batch_iteration))


@functools.cache
def _class_of(kind):
    return type(kind, (ConfigSchedule, CLASSES[kind]), {})


def of_config(engine, settings, source):
    """Returns the schedule that the config names. `source`: the config as a dict, for the options."""
    options = (source.get("scheduler") or {}).get("params") or {}
    return _class_of(settings.scheduler_type)(engine, settings, dict(options))
