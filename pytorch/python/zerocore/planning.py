"""zerocore.plan(): predicts memory, traffic and time of a run before it starts, on any machine."""

import json
import os
import tempfile

from torch import nn

from . import _native, config as configs, units


def plan(model_or_config, ds_config=None, *, ranks=8, per_node=8, device="h100", micro_batch=None, sequence_length=0,
         recompute=False, kernels="", rows=""):
    """Returns the rows of `zero plan`, as a list of dicts: bytes_per_rank, fits, step_seconds and more of each strategy.

    `model_or_config` is a module (also on the meta device), the name of a model of train_gpt, the path of a config.json
    or a .safetensors file, or a config of transformers, as an object or a dict. `ds_config` is as for initialize(); None:
    AdamW, in bf16 on GPUs and fp32 on CPUs. The other arguments are the options of `zero plan`. Starts no ranks. Raises
    ConfigError."""
    terms = _native.PlanTerms()
    for name, value in (("ranks", ranks), ("per_node", per_node), ("device", os.fspath(device)), ("rows", rows),
                        ("kernels", kernels), ("micro_batch", micro_batch), ("sequence_length", sequence_length),
                        ("recompute", recompute)):
        setattr(terms, name, value)
    given = "" if ds_config is None else json.dumps(configs.find(None, ds_config).as_dict())
    if isinstance(model_or_config, nn.Module):
        return json.loads(_plan_module(model_or_config, given, terms))
    if isinstance(model_or_config, (str, os.PathLike)):
        return json.loads(_native.plan_model(os.fspath(model_or_config), given, terms))
    described = model_or_config.to_dict() if hasattr(model_or_config, "to_dict") else model_or_config
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(described, file, default=str)
        file.flush()
        return json.loads(_native.plan_model(file.name, given, terms))


def _plan_module(module, given, terms):
    names = units.names_of_units(module)
    tensors = [(name, list(parameter.shape) or [1], parameter.requires_grad) for _, name, parameter in names]
    return _native.plan_tensors(type(module).__name__, tensors, [unit or "root" for unit, _, _ in names], given, terms)
