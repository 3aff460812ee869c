"""Reads the client state that a program passed to DeepSpeed's save_checkpoint(), as far as possible."""

import argparse
import collections
import datetime
import importlib.util
import pathlib

import numpy
import torch

import pickles
from problems import notice

# DeepSpeed itself stores these keys next to the client state.
OF_DEEPSPEED = frozenset(
    "module buffer_names optimizer param_shapes frozen_param_shapes shared_params frozen_param_fragments lr_scheduler "
    "data_sampler random_ltd skipped_steps global_steps global_samples dp_world_size mp_world_size ds_config ds_version "
    "universal_checkpoint_info checkpoint_parallel_dimensions sparse_tensor_module_names csr_tensor_module_names".split())
SAVED_STATE = pathlib.Path(__file__).resolve().parents[2] / "pytorch/python/zerocore/saved_state.py"
PLAIN = (type(None), bool, int, float, complex, str, bytes, pathlib.PurePath, datetime.date, datetime.timedelta,
         torch.dtype, torch.device, numpy.generic, numpy.ndarray)
LEFT_OUT = object()
DEEPEST = 100  # limits the recursion, since an object may contain itself


def kept(value, path, left):
    """Returns the value without its unreadable parts, and appends those to `left` as (path, kind). A sequence is kept
    whole or dropped, since positions in it have a meaning."""
    if path.count(".") + path.count("[") > DEEPEST:
        left.append((path, "nested too deep"))
        return LEFT_OUT
    if isinstance(value, pickles.NumpyArray) and value.numpy is not None:
        return value.numpy
    if isinstance(value, pickles.Namespace):
        return argparse.Namespace(**kept_items(vars(value), path, left))
    if isinstance(value, (dict, collections.OrderedDict)):
        return type(value)(kept_items(value, path, left))
    if isinstance(value, (list, tuple, set, frozenset)):
        before = len(left)
        items = [kept(item, f"{path}[{index}]", left) for index, item in enumerate(value)]
        return items_of(type(value), items) if len(left) == before else LEFT_OUT
    if isinstance(value, PLAIN) or torch.is_tensor(value) and value.layout == torch.strided and not value.is_quantized:
        return value
    left.append((path, kind_of(value)))
    return LEFT_OUT


def items_of(kind, items):
    return torch.Size(items) if kind is torch.Size else kind(items)


def kept_items(items, path, left):
    result = {}
    for key, value in items.items():
        at = f"{path}.{key}" if path else str(key)
        if not isinstance(key, (str, int, float, type(None))):
            left.append((at, f"a key of type {kind_of(key)}"))
            continue
        value = kept(value, at, left)
        if value is not LEFT_OUT:
            result[key] = value
    return result


def kind_of(value):
    return getattr(value, "name", None) or type(value).__name__


def schedule_of(model, config):
    """Returns the state of the program's own scheduler, None if the config has one: that one follows the step."""
    return None if (config.get("scheduler") or {}).get("type") else model.get("lr_scheduler")


def of_program(model, config):
    """Returns the state in bytes, as the Python engine saves it (saved_state.py)."""
    left = []
    state = {
        "global_steps": model["global_steps"], "skipped_steps": int(model.get("skipped_steps") or 0),
        "lr_scheduler": kept(schedule_of(model, config), "lr_scheduler", left),
        "client_state": kept_items({key: value for key, value in model.items() if key not in OF_DEEPSPEED}, "", left)}
    for key in ("data_sampler", "random_ltd"):
        if model.get(key) is not None:
            left.append((key, "a state of DeepSpeed's data efficiency"))
    if left:
        notice("left out of the client state: " + ", ".join(f"{path} ({kind})" for path, kind in left))
    state = {key: value for key, value in state.items() if value is not LEFT_OUT}
    spec = importlib.util.spec_from_file_location("saved_state", SAVED_STATE)
    saved_state = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(saved_state)
    return saved_state.to_bytes(state, "the client state")
