"""zerocore.plan(): predicts memory, traffic and time of a run before it starts, on any machine; and its command,
`python -m zerocore plan MODEL`."""

import argparse
import json
import os
import tempfile

import torch
from torch import nn

from . import _native, config as configs, units
from ._native import ConfigError


def plan(model_or_config, ds_config=None, *, ranks=8, per_node=8, device="h100", micro_batch=None, sequence_length=0,
         recompute=False, kernels="", rows=""):
    """Returns the rows of `zero plan`, as a list of dicts: bytes_per_rank, fits, step_seconds and more of each strategy.

    `model_or_config` is a module (also on the meta device), the name of a model of train_gpt, the path of a model's
    folder, config.json, index or .safetensors file, or a config of transformers, as an object or a dict. A config of
    another architecture than `zero plan` knows is made by transformers on the meta device, without memory for its
    values. `ds_config` is as for initialize(); None: AdamW, in bf16 on GPUs and fp32 on CPUs. The other arguments are the
    options of `zero plan`. Starts no ranks. Raises ConfigError."""
    return json.loads(_answer(model_or_config, ds_config, False, ranks=ranks, per_node=per_node, device=os.fspath(device),
                              rows=rows, kernels=kernels, micro_batch=micro_batch, sequence_length=sequence_length,
                              recompute=recompute))


def main(arguments):
    """Runs `python -m zerocore plan` with these arguments; prints the table of `zero plan`, or JSON."""
    parser = argparse.ArgumentParser("python -m zerocore plan", description="Predict memory, traffic and time of a training run.")
    parser.add_argument("model", help="a model's folder, config.json, index or .safetensors; or its name on the Hugging Face hub")
    parser.add_argument("--deepspeed_config", "--deepspeed-config", default=None)
    parser.add_argument("--json", action="store_true", help="a list of objects instead of the table")
    for name, default in (("ranks", 8), ("per-node", 8), ("micro-batch", None), ("sequence-length", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("device", "h100"), ("rows", ""), ("kernels", "")):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--recompute", action="store_true")
    given = vars(parser.parse_args(arguments))
    model, config, as_json = given.pop("model"), given.pop("deepspeed_config"), given.pop("json")
    try:
        print(_answer(model, config, not as_json, **given), end="")
    except ConfigError as error:
        parser.exit(10, f"zerocore: {error}\n")


def _answer(model, ds_config, as_text, **options):
    terms = _native.PlanTerms()
    for name, value in (*options.items(), ("as_text", as_text)):
        setattr(terms, name, value)
    given = "" if ds_config is None else json.dumps(configs.find(None, ds_config).as_dict())
    return _native.plan(_shape_of(model), given, terms)


def _shape_of(model):
    if isinstance(model, nn.Module):
        return _shape_of_module(model)
    try:
        if isinstance(model, (str, os.PathLike)):
            return _native.load_shape(os.fspath(model))
        return _shape_of_config(model.to_dict() if hasattr(model, "to_dict") else model)
    except ConfigError as error:
        module = _meta_module(model, error)
    return _shape_of_module(module)


def _shape_of_config(config):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file, default=str)
        try:
            return _native.load_shape(path)
        except ConfigError as error:
            raise ConfigError(str(error).replace(f"--model {path}", "the config").replace(path, "the config")) from None


def _meta_module(model, error):
    """Returns the model that transformers makes of a config, without memory; raises `error` if there is none."""
    named = isinstance(model, (str, os.PathLike))
    if named and not os.path.exists(model) and os.fspath(model).count("/") != 1:
        raise error
    try:
        import transformers
    except ImportError:
        raise ConfigError(f"{error}; transformers, which knows more models, is not installed") from None
    try:
        if named:
            config = transformers.AutoConfig.from_pretrained(os.fspath(model))
        elif isinstance(model, dict):
            config = transformers.AutoConfig.for_model(**model)
        else:
            config = model
        with torch.device("meta"):
            return _class_of(config, transformers)._from_config(config)
    except Exception as problem:
        raise ConfigError(f"{error}; transformers makes no model of it either: {problem}") from problem


def _class_of(config, transformers):
    for name in config.architectures or ():
        if hasattr(transformers, name):
            return getattr(transformers, name)
    for auto in (transformers.AutoModelForCausalLM, transformers.AutoModelForSeq2SeqLM, transformers.AutoModel):
        if type(config) in auto._model_mapping:
            found = auto._model_mapping[type(config)]
            return found[0] if isinstance(found, (list, tuple)) else found
    raise ValueError(f"it has no model for {type(config).__name__}")


def _shape_of_module(module):
    names = units.names_of_units(module)
    tensors = [(name, list(parameter.shape) or [1], parameter.requires_grad) for _, name, parameter in names]
    return _native.shape_of_tensors(type(module).__name__, tensors, [unit or "root" for unit, _, _ in names])
