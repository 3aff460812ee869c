"""Decides the type of a checkpoint's optimizer, and the states of it that are converted."""

import torch

from problems import listed, notice, refuse

STATES = {"Adam": ("exp_avg", "exp_avg_sq"), "AdamW": ("exp_avg", "exp_avg_sq"), "SGD": ("momentum_buffer",)}
# The names in DeepSpeed's configs, which it reads in any case, and those of its own classes.
NAMES = {"adam": "Adam", "fusedadam": "Adam", "deepspeedcpuadam": "Adam", "adamw": "AdamW", "sgd": "SGD"}
USUAL = {("exp_avg", "exp_avg_sq"): "AdamW", ("momentum_buffer",): "SGD", (): "SGD"}


def states_in(groups):
    """Returns the names of the states with one element per parameter element."""
    return {name for group in groups for name, value in group.items()
            if name != "step" and torch.is_tensor(value) and value.dim() > 0}


def guessed(found, folder):
    """Returns the optimizer that has these states, if the config does not name it."""
    name = USUAL.get(tuple(sorted(found)))
    if name is None:
        refuse(f"{folder}: its config has no optimizer section, and the optimizer state has {listed(sorted(found))}, "
               f"which is that of none of {', '.join(STATES)}")
    notice(f"the config has no optimizer section; by its state ({listed(sorted(found)) or 'none'}) the optimizer is "
           f"taken for {name}; --optimizer says otherwise")
    return name


def choose(folder, config, asked, found):
    """Returns (the optimizer's type, its states) from the config, the option and the states in the files."""
    section = config.get("optimizer") or {}
    said = asked or section.get("type")
    name = NAMES.get(str(said).lower()) if said else guessed(found, folder)
    if name is None:
        refuse(f"{folder}: the optimizer {said} is not one of {', '.join(STATES)}")
    states = STATES[name]
    if name == "SGD" and not found:
        if (section.get("params") or {}).get("momentum", 0):
            refuse(f"{folder}: the config's SGD has momentum, and the optimizer state has no momentum_buffer")
        return name, ()
    missing = [state for state in states if state not in found]
    if missing:
        refuse(f"{folder}: {'--optimizer' if asked else 'the config'} says {said}, and the optimizer state has no "
               f"{', '.join(missing)}; it has {listed(sorted(found)) or 'none'}; --optimizer names another one of "
               f"{', '.join(STATES)}")
    others = sorted(found - set(states))
    if others:
        notice(f"left out: {listed(others)} of the optimizer, which {name} does not have here")
    if name == "SGD" and section and not (section.get("params") or {}).get("momentum", 0):
        notice("the config's SGD has no momentum, and the optimizer state has a momentum_buffer: it comes over, and the "
               "config to resume with needs the momentum")
    return name, states
