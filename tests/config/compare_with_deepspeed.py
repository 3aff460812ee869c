"""Compares resolved configs with DeepSpeed's own, key by key, and the key table with its fields.

Usage: compare_with_deepspeed.py ZERO DIRECTORY [--verbose]

Every JSON file of DIRECTORY is read by `zero config explain --json` and by DeepSpeedConfig, at a number of ranks that
its batch sizes admit. "auto" is filled in for DeepSpeed as Hugging Face's Trainer does it. The script ends with 1 if a
difference is not listed in docs/config.md, or if less than 0.95 of the files that DeepSpeed accepts are accepted. Needs
deepspeed 0.19.8 and torch:

    pip install torch deepspeed==0.19.8
    DS_ACCELERATOR=cpu python compare_with_deepspeed.py build/release/bin/zero DIRECTORY
"""

import argparse
import collections
import copy
import inspect
import json
import logging
import os
import pathlib
import re
import subprocess
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")
logging.disable(logging.WARNING)

import deepspeed
import hjson
import torch
from deepspeed.runtime import config as ds_config
from deepspeed.runtime import lr_schedules

ROOT = pathlib.Path(__file__).resolve().parents[2]
HIDDEN, TOTAL_STEPS, LEARNING_RATE = 768, 1000, 5e-5
LEAST_SHARE = 0.95
MISSING = object()
BATCH = ["train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"]


class OneRank:
    """Replaces torch.distributed, from which DeepSpeedConfig reads the number of ranks."""

    def __init__(self, size):
        self.size = size

    def get_rank(self):
        return 0

    def get_world_size(self, group=None):
        return self.size


def trainer_value(path):
    """Returns the value that the Trainer uses instead of "auto"; MISSING if it removes the key."""
    values = {
        "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0,
        "optimizer.params.lr": LEARNING_RATE, "optimizer.params.betas": [0.9, 0.999], "optimizer.params.eps": 1e-8,
        "optimizer.params.weight_decay": 0.0, "scheduler.params.warmup_min_lr": 0,
        "scheduler.params.warmup_max_lr": LEARNING_RATE, "scheduler.params.warmup_num_steps": 1,
        "scheduler.params.total_num_steps": TOTAL_STEPS, "fp16.enabled": False, "bf16.enabled": False,
        "zero_optimization.reduce_bucket_size": HIDDEN * HIDDEN,
        "zero_optimization.stage3_prefetch_bucket_size": int(0.9 * HIDDEN * HIDDEN),
        "zero_optimization.stage3_param_persistence_threshold": 10 * HIDDEN,
    }
    return values.get(path, MISSING)


def fill(node, path=""):
    for key in list(node):
        here = f"{path}.{key}" if path else key
        if isinstance(node[key], dict):
            fill(node[key], here)
        elif node[key] == "auto":
            value = trainer_value(here)
            if value is not MISSING:
                node[key] = value
            elif not here.startswith("zero_optimization."):  # closed sections remove "auto" themselves
                del node[key]


def given_batch(document):
    values = []
    for key in BATCH:
        value = document.get(key)
        values.append(int(value) if value is not None else 0)
    return values


def admitted_ranks(document):
    total, micro, steps = given_batch(document)
    if total and micro and steps:
        return max(1, total // (micro * steps))
    if total:
        return next(n for n in (4, 2, 1) if total % (n * max(1, micro) * max(1, steps)) == 0 or n == 1)
    return 4


def read_theirs(document, ranks):
    ds_config.dist = OneRank(ranks)
    try:
        return ds_config.DeepSpeedConfig(document), ""
    except Exception as error:  # DeepSpeed raises many kinds, by design
        return None, f"{type(error).__name__}: {error}"


def read_ours(zero, file, ranks):
    command = [zero, "config", "explain", str(file), "--json", "--world-size", str(ranks), "--hidden-size", str(HIDDEN),
               "--total-steps", str(TOTAL_STEPS), "--micro-batch", "1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if result.returncode == 0:
        return json.loads(result.stdout), ""
    assert result.returncode == 10, result
    return None, result.stderr


def engine_takes(config):
    """Returns whether DeepSpeed's engine, the only reader of the optimizer's name, knows it."""
    name = config.optimizer_name
    return name is None or name in ds_config.DEEPSPEED_OPTIMIZERS or isinstance(getattr(torch.optim, name, None), type)


# --- values in DeepSpeed's objects ------------------------------------------------------------------------------------

def field(model, name):
    """Returns a field of a pydantic model, by its name or alias."""
    if model is None:
        return MISSING
    for own, info in type(model).model_fields.items():
        if name in (own, info.alias):
            return getattr(model, own)
    return MISSING


def default_of(function, name):
    parameter = inspect.signature(function).parameters.get(name)
    return MISSING if parameter is None or parameter.default is inspect.Parameter.empty else parameter.default


def optimizer_class(config):
    from deepspeed.ops.adam import FusedAdam
    from deepspeed.ops.lamb import FusedLamb
    from deepspeed.ops.lion import FusedLion
    name, params = config.optimizer_name, config.optimizer_params or {}
    if name in ("adam", "adamw"):
        if params.get("torch_adam"):
            return torch.optim.AdamW if name == "adamw" or params.get("adam_w_mode", True) else torch.optim.Adam
        return FusedAdam
    return {"lamb": FusedLamb, "lion": FusedLion, "adagrad": torch.optim.Adagrad}.get(name) or \
        getattr(torch.optim, name, None)


def of_optimizer(config, name):
    if config.optimizer_name is None:
        return MISSING
    if name == "type":
        return config.optimizer_name
    if not name.startswith("params."):
        return MISSING
    name = name.removeprefix("params.")
    if name in (config.optimizer_params or {}):
        return config.optimizer_params[name]
    kind = optimizer_class(config)
    if name == "adam_w_mode":
        return True
    return default_of(kind.__init__, name) if kind else MISSING


def of_scheduler(config, name):
    if config.scheduler_name is None:
        return None if name == "type" else MISSING
    if name == "type":
        return config.scheduler_name
    name = name.removeprefix("params.")
    if name in (config.scheduler_params or {}):
        return config.scheduler_params[name]
    return default_of(getattr(lr_schedules, config.scheduler_name).__init__, name)


def of_checkpoint(config, name):
    tags = {(False, False): "Ignore", (True, False): "Warn", (True, True): "Fail"}
    values = {
        "tag_validation": tags[config.checkpoint_tag_validation_enabled, config.checkpoint_tag_validation_fail],
        "load_universal": config.load_universal_checkpoint, "use_node_local_storage": config.use_node_local_storage,
        "parallel_write.pipeline_stage": config.checkpoint_parallel_write_pipeline,
    }
    return values.get(name, MISSING)


def dtype_name(value):
    names = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
    return names.get(value, value)


def of_sections(config):
    """Returns the values of sections that have an object of their own."""
    monitors = config.monitor_config
    return {
        "fp16": config.float16_config, "bf16": config.bfloat16_config, "comms_logger": config.comms_config,
        "tensorboard": monitors.tensorboard, "wandb": monitors.wandb, "csv_monitor": monitors.csv_monitor,
        "comet": monitors.comet, "compile": config.compile_config, "timers.throughput": config.timers_config,
        "tensor_parallel": config.tensor_parallel_config, "hybrid_engine": config.hybrid_engine,
        "weight_quantization": config.weight_quantization_config,
        "zero_optimization.offload_optimizer": config.zero_config.offload_optimizer,
        "zero_optimization.offload_param": config.zero_config.offload_param, "zero_optimization": config.zero_config,
        "activation_checkpointing": config.activation_checkpointing_config,
        "flops_profiler": config.flops_profiler_config,
    }


def theirs_at(config, path):
    readers = {"optimizer.": of_optimizer, "scheduler.": of_scheduler, "checkpoint.": of_checkpoint}
    for prefix, reader in readers.items():
        if path.startswith(prefix):
            return reader(config, path.removeprefix(prefix))
    if path.startswith("aio."):
        return config.aio_config.get(path.removeprefix("aio."), MISSING)
    if path.startswith("data_types."):
        return getattr(config, path.removeprefix("data_types."), MISSING)
    for section, model in of_sections(config).items():
        if path.startswith(section + "."):
            name = path.removeprefix(section + ".")
            return field(model, name) if hasattr(type(model), "model_fields") else getattr(model, name, MISSING)
    if path in ("communication_data_type", "seq_parallel_communication_data_type"):
        return dtype_name(getattr(config, path))
    return getattr(config, path, MISSING) if "." not in path else MISSING


# --- comparing --------------------------------------------------------------------------------------------------------

def plain(value):
    """Returns one form for equal values: enums, tuples, names in any case, 1.0 and 1."""
    if hasattr(value, "value"):
        value = value.value
    if isinstance(value, pathlib.Path):
        return str(value)
    if isinstance(value, str):
        return value.lower() or None  # "" means not set
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def equal(ours, theirs):
    if isinstance(theirs, pathlib.PurePath) and isinstance(ours, str):
        return pathlib.PurePath(ours) == theirs
    ours, theirs = plain(ours), plain(theirs)
    return ours == theirs and isinstance(ours, bool) == isinstance(theirs, bool) or str(ours) == str(theirs)


# Errors of DeepSpeed that do not name their key.
ABOUT = {"GDS currently only supported for CUDA": "aio.use_gds",
         "not supported between instances of 'str' and 'int'": "train_batch_size"}


class Documented:
    """The rows of the table of differences in docs/config.md, by the keys that they name."""

    def __init__(self, text):
        table = text.split("## Where values differ from DeepSpeed")[1].split("\n## ")[0]
        self.keys = set()
        for row in table.splitlines():
            if row.startswith("|"):
                self.keys |= set(re.findall(r"`([^`]+)`", row.split("|")[1]))
        self.used = set()

    def covers(self, path):
        for key in self.keys:
            if path == key or path.startswith(key + "."):
                self.used.add(key)
                return True
        return False

    def explains(self, error):
        """Returns whether an error of DeepSpeed is about a key that a row names."""
        found = [key for key in self.keys if re.search(rf"\b{re.escape(key.split('.')[-1])}\b", error, re.IGNORECASE)]
        found += [key for words, key in ABOUT.items() if words in error and key in self.keys]
        self.used.update(found)
        return bool(found)


class Comparison:
    def __init__(self, documented):
        self.documented = documented
        self.values = collections.defaultdict(list)    # path -> (file, ours, theirs)
        self.only_here = collections.defaultdict(list)   # DeepSpeed's reason -> files
        self.only_there = collections.defaultdict(list)  # our reason -> files
        self.compared = self.both = self.neither = self.not_by_engine = 0
        self.unlisted = 0

    def file(self, name, ours, theirs, errors):
        if ours is None and theirs is None:
            self.neither += 1
        elif theirs is None:
            listed = self.documented.explains(errors[1])
            self.only_here[self.marked(errors[1].strip().splitlines()[0][:150], listed)].append(name)
        elif ours is None:
            self.not_by_engine += not engine_takes(theirs)
            for line in errors[0].strip().splitlines():
                reason = re.sub(r"^.*?\.json:\d+:\d+: ", "", line)
                listed = (" is refused: " in reason or "DeepSpeed passes over it here" in reason
                          or self.documented.covers(reason.split(":")[0]))
                self.only_there[self.marked(reason[:150], listed)].append(name)
        else:
            self.both += 1
            self.all_values(name, ours, theirs)

    def marked(self, reason, listed):
        self.unlisted += not listed
        return reason if listed else reason + " (NOT LISTED in docs/config.md)"

    def all_values(self, name, ours, theirs):
        for path, entry in ours["values"].items():
            value = ours["batch"][path] if path in BATCH else entry["value"]
            other = theirs_at(theirs, path)
            if other is MISSING or callable(other) or value in ("an object", "an array"):
                continue
            self.compared += 1
            if not equal(value, other):
                self.values[path].append((name, value, other))

    def report(self, verbose):
        print(f"{self.both} files are read by both, {self.neither} by neither; {self.compared} values compared")
        alone = len({name for files in self.only_there.values() for name in files}) - self.not_by_engine
        share = self.both / max(1, self.both + alone)
        print(f"of {self.both + alone} files that DeepSpeed's parser and engine take, {self.both} are read here: "
              f"{share:.3f}; its parser alone takes {self.not_by_engine} more, whose optimizer it has no more")
        unknown = self.unlisted + (share < LEAST_SHARE)
        for path, cases in sorted(self.values.items()):
            listed = self.documented.covers(path)
            unknown += not listed
            pairs = collections.Counter((repr(ours), repr(theirs)) for _, ours, theirs in cases)
            print(f"  {path}: {len(cases)} files, {'listed' if listed else 'NOT LISTED in docs/config.md'}")
            for (ours, theirs), count in pairs.most_common(None if verbose else 3):
                print(f"      here {ours}, DeepSpeed {theirs}: {count}, as {cases[0][0]}")
        for title, groups in (("read here alone; DeepSpeed says", self.only_here),
                              ("read by DeepSpeed alone; refused here", self.only_there)):
            print(title)
            for reason, files in sorted(groups.items(), key=lambda item: -len(item[1])):
                print(f"  {len(files)}  {reason}" + (f"  {files}" if verbose else ""))
        return unknown


# --- the key table ----------------------------------------------------------------------------------------------------

def schema_at(schema, path):
    for name in path.split("."):
        options = [schema, *schema.get("anyOf", [])]
        schema = next((option["properties"][name] for option in options if name in option.get("properties", {})), None)
        if schema is None:
            return None
    return schema


def is_block(schema, path):
    """Returns whether the path lies inside an object whose members the table does not list."""
    while "." in path:
        path = path.rpartition(".")[0]
        row = schema_at(schema, path)
        if row is not None:
            return not any("properties" in option for option in [row, *row.get("anyOf", [])])
    return False


def check_table(schema, documented):
    """Checks that every field of DeepSpeed's validated sections is a row, with the same default."""
    config = ds_config.DeepSpeedConfig({"train_batch_size": 1, "weight_quantization": {}, "zero_optimization": {
        "stage": 3, "offload_param": {}, "offload_optimizer": {}, "zenflow": {}}})
    bad = checked = 0
    for section, model in of_sections(config).items():
        for name, info in getattr(type(model), "model_fields", {}).items():
            for spelling in {name, info.alias or name}:
                path = f"{section}.{spelling}"
                row = schema_at(schema, path)
                if row is None:
                    if not is_block(schema, path):
                        bad += 1
                        print(f"  {path}: is no row of the key table")
                    continue
                checked += 1
                initial = plain(info.get_default(call_default_factory=True))
                if "default" in row and not equal(row["default"], initial) and not documented.covers(path):
                    bad += 1
                    print(f"  {path}: default {row['default']!r} here, {initial!r} in DeepSpeed")
    print(f"{checked} fields of DeepSpeed {deepspeed.__version__} checked against the key table")
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("zero")
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    documented = Documented((ROOT / "docs" / "config.md").read_text(encoding="utf-8"))
    schema = json.loads((ROOT / "config_schemas" / "ds_config.schema.json").read_text(encoding="utf-8"))
    bad = check_table(schema, documented)
    comparison = Comparison(documented)
    for file in sorted(options.directory.glob("*.json")):
        document = hjson.loads(file.read_text(encoding="utf-8"))
        fill(document)
        ranks = admitted_ranks(document)
        theirs, their_error = read_theirs(copy.deepcopy(document), ranks)
        ours, our_error = read_ours(options.zero, file, ranks)
        comparison.file(file.name, ours, theirs, (our_error, their_error))
    bad += comparison.report(options.verbose)
    unused = documented.keys - documented.used
    if unused:
        print("listed without a difference in these files:", ", ".join(sorted(unused)))
    return 1 if bad else 0


sys.exit(main())
