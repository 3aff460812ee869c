"""A client's optimizer becomes the engine's: its type and groups, by the config's names."""

import torch

from . import _native

# Classes of torch and of DeepSpeed, and the config's type for each.
_TYPES = {"Adam": "Adam", "AdamW": "AdamW", "SGD": "SGD", "Adagrad": "Adagrad", "FusedAdam": "Adam",
          "DeepSpeedCPUAdam": "Adam", "DeepSpeedCPUAdagrad": "Adagrad"}
_OPTIONS = {"Adam": ("betas", "eps", "weight_decay"), "AdamW": ("betas", "eps", "weight_decay"),
            "SGD": ("momentum", "weight_decay"), "Adagrad": ("eps", "weight_decay")}
# What the engine does in one way only.
_FIXED = {"amsgrad": False, "maximize": False, "nesterov": False, "dampening": 0, "lr_decay": 0,
          "initial_accumulator_value": 0}


class EngineOptimizer(torch.optim.Optimizer):
    """The optimizer as schedulers and scripts see it: its groups and their rates. The engine does the step.

    Rates that a scheduler or the program sets in `param_groups` act in the next step."""

    def __init__(self, groups, defaults):
        super().__init__(groups, defaults)
        base = _rate(self.param_groups[0])
        self._scales = [_rate(group) / base if base else 1.0 for group in self.param_groups]

    def scales(self):
        """The groups' rates over that of the first one, which stay as they are."""
        return self._scales

    def rate(self):
        """The first group's rate; those of the others follow from it."""
        rate = float(self.param_groups[0]["lr"])
        for index, (group, scale) in enumerate(zip(self.param_groups, self._scales)):
            if abs(float(group["lr"]) - rate * scale) > 1e-6 * rate * scale + 1e-30:
                raise _native.UsageError(
                    f"the learning rate of optimizer group {index} is {group['lr']}, and was {scale} times that "
                    f"of group 0, which is {rate}: the engine keeps the ratio of the groups' rates")
        return rate

    def step(self, closure=None):
        raise _native.UsageError("call engine.step(): the state of the optimizer is the engine's")

    def zero_grad(self, set_to_none=True):
        """Gradients are the engine's, and zero after each step."""

    def state_dict(self):
        return {"param_groups": [{k: v for k, v in group.items() if k != "params"} for group in self.param_groups]}

    def load_state_dict(self, state):
        for group, saved in zip(self.param_groups, state["param_groups"]):
            group.update(saved)


def _rate(group):
    return float(group.get("initial_lr", group["lr"]))


def replace(client):
    """The engine's optimizer with the groups of a client's, and its part of the config."""
    kind = type(client).__name__
    if kind not in _TYPES:
        raise _native.UsageError(
            f"optimizer {kind} is not one of the engine's: use one of {', '.join(sorted(_TYPES))}, or name one "
            'in the config ("optimizer": {"type": ...})')
    for index, group in enumerate(client.param_groups):
        for option, value in _FIXED.items():
            if group.get(option, value) != value:
                raise _native.UsageError(f"optimizer {kind}: {option} of group {index} is {group[option]}; "
                                         f"the engine has {value}")
    groups = [{key: value for key, value in group.items()} for group in client.param_groups]
    optimizer = EngineOptimizer(groups, dict(client.defaults))
    name = _TYPES[kind]
    params = {"lr": _rate(client.param_groups[0]), **_options(client.param_groups[0], name)}
    if name == "Adam":
        params["adam_w_mode"] = bool(getattr(client, "adam_w_mode", kind != "Adam"))
    section = {"optimizer": {"type": name, "params": params}}
    names = [f"group{index}" for index in range(len(groups))]
    section["zero_core"] = {"param_groups": {
        group_name: {"lr_scale": scale, **_options(group, name)}
        for group_name, group, scale in zip(names, client.param_groups, optimizer.scales())}}
    return optimizer, section


def _options(group, name):
    values = {key: group[key] for key in _OPTIONS.get(name, ("weight_decay",)) if key in group}
    if "betas" in values:
        values["betas"] = [float(beta) for beta in values["betas"]]
    return values


def configured_groups(groups, document):
    """The groups of model_parameters under the config's optimizer: what a group does not say is the optimizer's."""
    section = document.get("optimizer", {})
    name = _TYPES.get(section.get("type", "AdamW"), section.get("type"))
    known = ("lr", *_OPTIONS.get(name, ("weight_decay",)))
    base = section.get("params", {}).get("lr", 1e-3)
    named = {}
    for index, group in enumerate(groups):
        if not isinstance(group, dict):
            raise _native.UsageError("zerocore.initialize: model_parameters is a list of parameters, or of groups "
                                     f"(dicts with params); its entry {index} is a {type(group).__name__}")
        group["params"] = [group["params"]] if isinstance(group["params"], torch.Tensor) else list(group["params"])
        unknown = [key for key in group if key not in ("params", "name", *known)]
        if unknown:
            raise _native.UsageError(f"zerocore.initialize: group {index} of model_parameters has the option "
                                     f"{unknown[0]}; under {name} a group has {', '.join(known)}")
        scale = 1.0
        if "lr" in group:
            if isinstance(base, str) or not base:
                raise _native.UsageError(f"zerocore.initialize: group {index} of model_parameters has the learning rate "
                                         f"{group['lr']}, and optimizer.params.lr is {base}: give it a number above 0")
            scale = float(group["lr"]) / float(base)
        named[f"group{index}"] = {"lr_scale": scale, **_options(group, name)}
    return named


def group_names(groups):
    """id of a parameter -> the name of its group."""
    return {id(parameter): f"group{index}" for index, group in enumerate(groups) for parameter in group["params"]}
