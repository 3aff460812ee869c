"""The client's optimizer and the engine's. The groups are the client's, and the engine does the step: each step
reads the values in the groups, whoever has written them."""

import functools
import gc
import inspect
import itertools
import math
import sys
import types
import warnings
import weakref

import torch

from . import _native
from .integrations import optimizers as of_others
from .loss_scale import LossScale

# Optimizers by module and name, and the kind of each: the engine's type, except for torch's Muon, which has no Adam for
# parameters that are no matrices. Classes are compared by identity.
_CLASSES = {
    ("torch.optim", "Adam"): "Adam", ("torch.optim", "AdamW"): "Adam", ("torch.optim", "SGD"): "SGD",
    ("torch.optim", "Adagrad"): "Adagrad", ("torch.optim", "Muon"): "TorchMuon",
    ("torch.optim", "Adafactor"): "Adafactor", **of_others.CLASSES,
}
# Values that each group has for itself, read in each step.
_VALUES = {"adam": ("lr", "betas", "eps", "weight_decay"), "adamw": ("lr", "betas", "eps", "weight_decay"),
           "lamb": ("lr", "betas", "eps", "weight_decay"), "lion": ("lr", "betas", "weight_decay"),
           "adagrad": ("lr", "eps", "weight_decay"), "sgd": ("lr", "momentum", "weight_decay"),
           "muon": ("lr", "momentum", "betas", "eps", "weight_decay"), "torchmuon": ("lr", "momentum", "weight_decay"),
           "adafactor": ("lr", "weight_decay"), "transformersadafactor": ("lr", "weight_decay")}
# Values that all groups share and that never change.
_COMMON = {"adam": ("bias_correction",), "sgd": ("dampening", "nesterov"), "lion": (),
           "adagrad": ("lr_decay", "initial_accumulator_value"),
           "lamb": ("bias_correction", "max_coeff", "min_coeff", "eps_inside_sqrt"), "torchmuon": (),
           "adafactor": ("beta2_decay", "eps", "d"),
           "transformersadafactor": ("decay_rate", "eps", "clip_threshold", "scale_parameter", "relative_step",
                                     "warmup_init")}
# Options that the engine supports with these values only.
_FIXED = {"amsgrad": (False,), "maximize": (False,), "max_grad_norm": (0,), "wd_after_momentum": (False,)}
_FIXED_OF = {"torchmuon": {"nesterov": (True,), "ns_coefficients": ((3.4445, -4.7750, 2.0315),), "eps": (1e-7,),
                           "ns_steps": (5,), "adjust_lr_fn": ("original", None)},
             "transformersadafactor": {"beta1": (None,)}}
# Options that choose how the client computes a step, which the engine ignores.
_WITHOUT_EFFECT = {"foreach", "fused", "capturable", "differentiable", "set_grad_none", "decoupled_weight_decay"}
_ADVICE = ("use one of torch.optim's Adam, AdamW, SGD, Adagrad, Adafactor or Muon (matrices only), or name one in the config "
           '("optimizer": {"type": ...}; Lamb, Lion and a Muon for all parameters are there too)')
# The engine's names of options that transformers' Adafactor names otherwise.
_RENAMED = {"decay_rate": "beta2_decay", "clip_threshold": "d"}
# torch's tables of hooks for the steps of all optimizers.
_HOOKS_OF_ALL = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")


class EngineOptimizer(LossScale, torch.optim.Optimizer):
    """The optimizer that initialize() returns. Its groups are the dicts of the client's optimizer."""

    def __init__(self, source, kind, names, configured, scheduled):
        """`names`: each group's name in the engine, None if it trains nothing. If `configured`, the config sets the
        values of the groups, and if `scheduled` its schedule writes them, until the program does."""
        self._source = source
        self._engine = None  # a weak reference
        self.ahead = 0  # steps that the config's schedule is ahead of the engine's
        super().__init__(source.param_groups, source.defaults)
        self.state = _States()
        if not source.state:
            source.state = self.state
        self.overflow = False  # whether the last step was skipped, which accelerate reads
        self._kind, self._keys = kind.lower(), _VALUES[kind.lower()]
        self._names, self._has_told = names, False
        self._members = _members_of(source.param_groups)
        self._configured, self._scheduled = configured or scheduled, scheduled
        self._written = None  # the values that the engine has written into each group
        self._has_momentum = [bool(group.get("momentum")) for group in source.param_groups]
        self._constant_keys = {*_fixed(kind), *_COMMON.get(self._kind, ()), "decoupled_weight_decay"}
        self._constant = [self._constants_of(group) for group in source.param_groups]
        source.add_param_group = self.add_param_group = _refuse_group
        source.step = types.MethodType(_refuse_step, source)

    def attach(self, engine):
        """Called once by the engine."""
        self._engine = weakref.ref(engine)

    def refresh_fp32_params(self):
        """Does nothing: master weights follow values that the program writes to parameters, in the next step."""

    def client_name(self):
        """Returns the name of the client's class; None for the config's optimizer."""
        kind = type(self._source)
        return None if kind is torch.optim.Optimizer else kind.__name__

    @property
    def _global_grad_norm(self):
        engine = self._engine() if self._engine is not None else None
        return None if engine is None else engine.get_global_grad_norm()

    @property
    def clip_grad(self):
        """The gradient norm to which steps clip, as the config says; 0 if they do not."""
        engine = self._engine() if self._engine is not None else None
        return None if engine is None else engine.gradient_clipping()

    @clip_grad.setter
    def clip_grad(self, max_norm):
        """Raises UsageError: it would clip nothing."""
        raise _native.UsageError("optimizer.clip_grad cannot be set: gradient_clipping of the config says to which norm steps clip, and "
                                 "engine.step(max_norm=...) clips one step further")

    def offload_states(self, include=None, device="cpu", pin_memory=True, non_blocking=False):
        """Calls the engine's offload_states()."""
        self._engine().offload_states(include, device, pin_memory, non_blocking)

    def reload_states(self, non_blocking=False):
        """Calls the engine's reload_states()."""
        self._engine().reload_states(non_blocking)

    @property
    def optimizer(self):
        """The client's optimizer, whose groups these are; for the config's, one that only holds the groups."""
        return self._source

    @property
    def param_groups(self):
        """The client's groups: a list of dicts with "params" and the group's values."""
        return self._source.param_groups  # the client's load_state_dict() replaces the list

    @param_groups.setter
    def param_groups(self, groups):
        """The client gets them too, except from torch's constructor."""
        if self._engine is not None:
            self._source.param_groups = groups

    def add_param_group(self, group):
        """torch's constructor adds the groups, but they are the client's."""

    def __getattr__(self, name):
        """Returns attributes of the client's class, such as `fused` or a program's own."""
        if name == "_source":
            raise AttributeError(name)
        try:
            value = getattr(self._source, name)
        except AttributeError:
            raise AttributeError(f"zerocore's optimizer, in place of DeepSpeed's, has no attribute {name!r}, and "
                                 f"{self.client_name() or 'the config'}'s has none either") from None
        if inspect.ismethod(value):
            raise AttributeError(f"{type(self._source).__name__}.{name}() of the client's optimizer is not called through "
                                 "the engine's, which does the step; call it on the client's, or engine.step()")
        return value

    def __reduce_ex__(self, protocol):
        raise _native.UsageError("the engine's optimizer cannot be copied or pickled: its state is the engine's; call "
                                 "engine.save_checkpoint(), or save its state_dict(), which has the groups")

    def given(self):
        """Returns (a rate or None, {name: values} of the groups) for the next step."""
        self._check()
        values = [None if name is None else self._values_of(index, group)
                  for index, (name, group) in enumerate(zip(self._names, self.param_groups))]
        grouped = any(self._names)  # a group without a name is the whole model under the config's optimizer
        if not any(values) or values == self._written and not grouped and not self.ahead:
            return None, {}
        rate = next(value["lr"] for value in values if value)
        return rate, {name: _native.GroupValues(**value) for name, value in zip(self._names, values) if value}

    def _values_of(self, index, group):
        values = {}
        for key in self._keys:
            if key not in group:
                continue
            try:
                value = (tuple(map(float, group[key])) if key == "betas" else _rate_of(group) if key == "lr"
                         else float(group[key]))
                numbers = value if key == "betas" else (value,)
                below = 1 if key == "betas" else 1 + 1e-9 if key == "momentum" else math.inf
                sound = len(numbers) == (2 if key == "betas" else 1) and all(0 <= n < below for n in numbers)
            except (TypeError, ValueError):
                sound = False
            if not sound:
                raise _native.UsageError(f"{key} of optimizer group {index} is {group[key]!r}; expected "
                                         f"{'two numbers from 0, below 1' if key == 'betas' else 'a number from 0'}")
            values[key] = value
        if self._kind == "sgd" and (values["momentum"] > 0) != self._has_momentum[index]:
            raise _native.UsageError(f"momentum of optimizer group {index} is {values['momentum']}: SGD takes memory for "
                                     "it at zerocore.initialize() or never, so a group's momentum is 0 in all steps or "
                                     "in none")
        return values

    def _check(self):
        """Raises UsageError if a value has changed that is fixed since initialize()."""
        if _members_of(self.param_groups) != self._members:
            raise _native.UsageError("the parameters of the optimizer's groups are others than they were at "
                                     "zerocore.initialize(), whose memory is laid out for those; to let some start "
                                     'later, give their group "lr" 0 until then')
        for index, (group, before) in enumerate(zip(self.param_groups, self._constant)):
            for key, value in self._constants_of(group).items():
                if before.get(key, value) != value:
                    raise _native.UsageError(f"{key} of optimizer group {index} is {value}, and was {before[key]} at "
                                             "zerocore.initialize(); the engine keeps it")
        _refuse_hooks(self._source)
        _refuse_hooks(self)
        of_torch = sys.modules[torch.optim.Optimizer.__module__]
        if not self._has_told and any(getattr(of_torch, name, None) for name in _HOOKS_OF_ALL):
            self._has_told = True
            warnings.warn("zerocore: engine.step() calls no hook of torch.optim.optimizer.register_optimizer_step_pre_hook() or "
                          "_post_hook(): call the function next to engine.step()", stacklevel=2)

    def _constants_of(self, group):
        return {key: group[key] for key in self._constant_keys if key in group}

    def follow(self, native):
        """Writes the values of the config and its schedule for the next step into the groups."""
        if not self._configured or self._written is not None and not self._scheduled:
            return
        written = []
        for index, (name, group) in enumerate(zip(self._names, self.param_groups)):
            if name is None:
                written.append(None)
                continue
            values = {key: value for key, value in native.next_values(name, self.ahead).items().items() if key in self._keys}
            before = self._written[index] if self._written else {}
            group.update({key: value for key, value in values.items()
                          if self._scheduled and key == "lr" or before.get(key) != value})
            written.append(values)
        self._written = written

    def note_step(self, skipped):
        """Records a step for schedulers, which check whether the optimizer has stepped before them."""
        self.overflow = skipped
        self._opt_called = self._source._opt_called = True

    def rates(self):
        """Returns the learning rate of each group."""
        return [_rate_of(group) for group in self.param_groups]

    def groups_to_save(self):
        """Returns the argument of load_groups(): all that the program has set, as numbers, texts and lists."""
        saved = []
        for index, group in enumerate(self.param_groups):
            own = self._written[index] if self._written else None
            saved.append({key: _plain(value) for key, value in group.items()
                          if key != "params" and _plain(value) is not None and not (own and own.get(key) == value)})
        return saved

    def load_groups(self, saved):
        """Sets the values that groups_to_save() returned. Raises UsageError for another number of groups."""
        if len(saved) != len(self.param_groups):
            raise _native.UsageError(f"the checkpoint has {len(saved)} optimizer groups, and the optimizer has "
                                     f"{len(self.param_groups)}; give initialize() the groups of the saved run")
        for group, values in zip(self.param_groups, saved):
            for key, value in values.items():
                if isinstance(group.get(key), torch.Tensor):
                    group[key].fill_(value)
                else:
                    group[key] = tuple(value) if isinstance(value, list) else value

    def step(self, closure=None):
        """Raises UsageError: engine.step() does the step."""
        _refuse_step(self)

    def zero_grad(self, set_to_none=True):
        """Calls the engine's zero_grad(), as the engine has the gradients; it zeroes them in each step too."""
        engine = self._engine() if self._engine is not None else None
        if engine is not None:
            engine.zero_grad()

    def state_dict(self):
        """Returns the groups and no moments, with a warning: engine.save_checkpoint() saves moments."""
        warnings.warn("zerocore: state_dict() of the engine's optimizer has its groups, and no moments: these are in "
                      "engine.save_checkpoint()", stacklevel=2)
        return super().state_dict()

    def load_state_dict(self, state):
        """Loads the groups. Raises UsageError if the state has moments: engine.load_checkpoint() loads them."""
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            replaced = hook(self, state)
            state = state if replaced is None else replaced
        if state.get("state"):
            raise _native.UsageError("load_state_dict() of the engine's optimizer takes its groups; moments come from "
                                     "engine.load_checkpoint()")
        self.load_groups([{key: value for key, value in group.items() if key != "params"}
                          for group in state["param_groups"]])
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)


class _States(dict):
    """optimizer.state. The engine has the moments, so reading them here raises UsageError instead of looking like a
    fresh start."""

    def __missing__(self, parameter):
        raise _native.UsageError("optimizer.state has no moments, since they are the engine's: take "
                                 'zerocore.safe_get_full_optimizer_state(parameter, "exp_avg") (or another name), which is '
                                 "collective, and save them by engine.save_checkpoint()")

    def get(self, parameter, default=None):
        return self[parameter]


def _refuse_started(client):
    """Raises UsageError if the client's optimizer has moments already (from steps or a file), because they would be
    lost."""
    for state in client.state.values():
        if any(torch.as_tensor(value).any() for key, value in state.items()
               if value is not None and key in ("step", "exp_avg", "momentum_buffer")):
            raise _native.UsageError("zerocore.initialize: the optimizer has moments already (from steps before, or "
                                     "load_state_dict()), and the engine starts without: make a new optimizer, and load "
                                     "moments by engine.load_checkpoint()")


def guard_others():
    """Makes step() of each other optimizer that exists raise UsageError if it has parameters of an engine, as it would do
    nothing: the engine has the gradients. Parameters that the program itself has frozen are no reason. The hooks are the
    optimizers' own, since torch's hook for all would act in code without an engine too."""
    kinds = _subclasses(torch.optim.Optimizer) - {EngineOptimizer}
    objects = gc.get_objects()  # half a million, so that they are searched without a loop of Python's
    for each in itertools.compress(objects, map(kinds.__contains__, map(type, objects))):
        hooks = each.__dict__.get("_optimizer_step_pre_hooks")  # an optimizer that wraps another has none
        if hooks is not None and _refuse_other_step not in hooks.values() and any(
                hasattr(parameter, "_zerocore_engine") for group in each.param_groups for parameter in group["params"]):
            each.register_step_pre_hook(_refuse_other_step)


def _subclasses(kind):
    return {kind}.union(*(_subclasses(each) for each in kind.__subclasses__()))


def _refuse_other_step(optimizer, arguments, options):
    for parameter in (p for group in optimizer.param_groups for p in group["params"]):
        link = getattr(parameter, "_zerocore_engine", None)
        engine = link() if link is not None else None
        frozen = getattr(parameter, "_zerocore_frozen", False)
        trained = parameter.requires_grad or frozen
        if engine is None or engine.native is None or engine.optimizer is None or not trained:
            continue
        why = "and frozen, since the optimizer of initialize() lacks it" if frozen else "which trains it"
        raise _native.UsageError(
            f"{type(optimizer).__name__}.step() would do nothing: {engine.name_of(parameter)} is a parameter of the engine "
            f"of a {type(engine.module).__name__}, {why}. Give initialize() one optimizer with all parameters that are "
            "trained, in groups with their own rates, and call engine.step()")


def _members_of(groups):
    return [{id(parameter) for parameter in group["params"]} for group in groups]


def _refuse_step(optimizer, closure=None):
    raise _native.UsageError("call engine.step(): the state of the optimizer is the engine's")


_refuse_step._wrapped_by_lr_sched = True  # without this, a scheduler warns that its count of steps is gone


def _refuse_group(group):
    raise _native.UsageError("add_param_group() after zerocore.initialize(): the engine's memory is laid out for the "
                             'groups that it was given; give it all groups, with "lr" 0 for those that start later')


def _refuse_hooks(optimizer):
    for kind in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
        if set(getattr(optimizer, kind, {}).values()) - {_refuse_other_step}:
            raise _native.UsageError(f"the optimizer has a hook of register{kind.removesuffix('s')[len('_optimizer'):]}"
                                     "(), which nobody would call: the engine does the step; call the function next to "
                                     "engine.step()")


def _fixed(kind):
    """Returns {option: the values of it that the engine supports}."""
    return {**_FIXED, **_FIXED_OF.get(kind.lower(), {})}


def _plain(value):
    """Returns a group's value as JSON has it, or None."""
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else None
    if isinstance(value, (list, tuple)):
        items = [_plain(item) for item in value]
        return None if any(item is None for item in items) else items
    return value if isinstance(value, (bool, int, float, str)) else None


@functools.lru_cache
def _found(module, name):
    return getattr(sys.modules[module], name, None)


def _class_of(client):
    """Returns (the known class that the client's is or behaves like, the engine's type)."""
    known = {_found(module, name): kind for (module, name), kind in _CLASSES.items() if module in sys.modules}
    kind = type(client)
    base = next((cls for cls in kind.__mro__ if cls in known), None)
    if base is None:
        raise _native.UsageError(f"optimizer {kind.__name__} is not one of the engine's, but {_path_of(kind)}: {_ADVICE}")
    for method in ("step", "_init_group"):
        if inspect.unwrap(getattr(kind, method, None) or len) is not inspect.unwrap(getattr(base, method, None) or len):
            raise _native.UsageError(f"optimizer {_path_of(kind)} has a {method}() in place of {base.__name__}'s, which "
                                     f"the engine would not call: {_ADVICE}")
    if not _is_step_of(kind, vars(client).get("step", kind.step)):
        raise _native.UsageError(f"optimizer {kind.__name__}: its step was replaced on this object (optimizer.step = ...) by "
                                 "one that the engine would not call: take the replacement away, and do its work around "
                                 "engine.step() or in hooks of the gradients (register_hook)")
    return base, known[base]


def _is_step_of(kind, step):
    """Whether a step of an object is that of its class, which schedulers wrap to count calls, or an earlier engine's."""
    while getattr(step, "_wrapped_by_lr_sched", False) and hasattr(step, "__wrapped__"):
        step = step.__wrapped__
    own = kind.step
    while own is not None:
        if getattr(step, "__func__", step) in (own, _refuse_step):
            return True
        own = getattr(own, "__wrapped__", None)
    return False


def _path_of(kind):
    return f"{kind.__module__}.{kind.__qualname__}"


def _check_options(client, kind):
    name = _path_of(type(client))
    _refuse_hooks(client)
    fixed = _fixed(kind)
    own = {*_VALUES[kind.lower()], *_COMMON[kind.lower()], *fixed, *_WITHOUT_EFFECT}
    for index, group in enumerate(client.param_groups):
        for option in client.defaults:
            if option not in own:
                raise _native.UsageError(f"optimizer {name} has the option {option}, which the engine does not support: "
                                         f"{_ADVICE}")
            value = tuple(group[option]) if isinstance(group[option], list) else group[option]
            if option in fixed and value not in fixed[option]:
                raise _native.UsageError(f"optimizer {name}: {option} of group {index} is {group[option]}; the engine "
                                         f"has {fixed[option][0]}")
            first = client.param_groups[0]
            if option in (*_COMMON[kind.lower()], "decoupled_weight_decay") and group[option] != first[option]:
                raise _native.UsageError(f"optimizer {name}: {option} of group {index} is {group[option]}, and of "
                                         f"group 0 {first[option]}; the engine has one for all groups")


def of_client(client, names, scheduled):
    """Returns the engine's optimizer over a client's. names[i] is the engine's name of group i, or None."""
    _, kind = _class_of(client)
    _check_options(client, kind)
    _refuse_started(client)
    return EngineOptimizer(client, kind, names, False, scheduled)


def updates_matrices(client):
    """Returns True if the client's optimizer updates whole matrices, whatever their names, else None."""
    return True if client is not None and _class_of(client)[1] == "TorchMuon" else None


def configure(settings, optimizer, client):
    """Puts a client's optimizer and its groups into the config."""
    base, kind = _class_of(client)
    groups = client.param_groups
    first = next((group for group, name in zip(groups, optimizer._names) if name), groups[0])
    options = {**_options(first, kind), **{key: first[key] for key in _COMMON[kind.lower()] if key in first}}
    if kind == "Adam":
        decoupled = first.get("decoupled_weight_decay", base is _found("torch.optim", "AdamW"))
        options["adam_w_mode"] = bool(getattr(client, "adam_w_mode", decoupled))
    if kind == "Lamb":
        options["eps_inside_sqrt"] = getattr(client, "eps_mode", 1) == 0
    if settings.optimizer_given:
        settings.note(f"optimizer: the config's {settings.optimizer_type} does not act, as initialize() was given "
                      f"{_path_of(type(client))}")
    if kind == "TorchMuon":
        options["ns_method"] = "torch"
    if kind.endswith("Adafactor"):
        eps1, options["eps2"] = options.pop("eps")
        options = {_RENAMED.get(key, key): value for key, value in options.items()}
        options |= {"transformers_form": kind.startswith("Transformers")} | ({} if eps1 is None else {"eps1": eps1})
    settings.use_optimizer(kind.removeprefix("Torch").removeprefix("Transformers"), options)
    for group, name in zip(groups, optimizer._names):
        if name is not None:
            _add_group(settings, name, _options(group, kind), options["lr"])


def _rate_of(group):
    """Returns a group's learning rate: the most of transformers' relative steps, which have none."""
    return 1e-2 if group["lr"] is None and group.get("relative_step") else float(group["lr"])


def _options(group, kind):
    """Returns a group's values at the start."""
    values = {key: group[key] for key in _VALUES[kind.lower()] if key in group}
    values["lr"] = _rate_of(group)
    if "betas" in values:
        values["betas"] = tuple(map(float, values["betas"]))
    return {key: value if key == "betas" else float(value) for key, value in values.items()}


def _add_group(settings, name, values, base):
    """Adds a group to the settings. With the config's schedule, a group's rate is a multiple of the scheduled one."""
    scale = 1.0
    if "lr" in values and settings.scheduler_type and base > 0:
        scale = values.pop("lr") / base
    settings.add_group(name, scale, _native.GroupValues(**values))


def configured_groups(settings, groups, names):
    """Adds the groups of model_parameters under the config's optimizer, which sets the values that a group leaves
    out."""
    kind = settings.optimizer_type
    known = _VALUES[kind.lower()]
    for index, (group, name) in enumerate(zip(groups, names)):
        unknown = [key for key in group if key not in ("params", "name", "initial_lr", *known)]
        if unknown:
            raise _native.UsageError(f"zerocore.initialize: group {index} of model_parameters has the option "
                                     f"{unknown[0]}; under {kind} a group has {', '.join(known)}")
        if name is not None:
            values = {key: group[key] for key in known if key in group}
            if "betas" in values:
                values["betas"] = tuple(map(float, values["betas"]))
            _add_group(settings, name, {k: v if k == "betas" else float(v) for k, v in values.items()},
                       settings.learning_rate)


def of_config(settings, groups, names):
    """Returns the engine's optimizer under the config's: follow() writes the values of the groups."""
    kind = settings.optimizer_type
    defaults = {key: value for key, value in settings.optimizer_values.items().items() if key in _VALUES[kind.lower()]}
    return EngineOptimizer(torch.optim.Optimizer(groups, defaults), kind, names, True, bool(settings.scheduler_type))


def as_groups(model_parameters):
    """Returns model_parameters as a list of groups; None if it is no list of dicts."""
    if not any(isinstance(entry, dict) for entry in model_parameters or []):
        return None
    for index, group in enumerate(model_parameters):
        if not isinstance(group, dict):
            raise _native.UsageError("zerocore.initialize: model_parameters is a list of parameters, or of groups "
                                     f"(dicts with params); its entry {index} is a {type(group).__name__}")
        group["params"] = [group["params"]] if isinstance(group["params"], torch.Tensor) else list(group["params"])
    return model_parameters


def names_of(groups):
    """Returns each group's name in the engine, or None if the group trains nothing."""
    return [f"group{index}" if any(p.requires_grad for p in group["params"]) else None
            for index, group in enumerate(groups)]


def refuse_missing_metrics(scheduler, lr_kwargs):
    """Raises UsageError before a step after which the scheduler would raise."""
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau) and "metrics" not in (lr_kwargs or {}):
        raise _native.UsageError("the ReduceLROnPlateau that zerocore.initialize() was given takes a step in each "
                                 "engine.step(), which needs engine.step(lr_kwargs={\"metrics\": loss}); to step it "
                                 "after each epoch instead, do not give it to initialize(), and call its step(loss)")
