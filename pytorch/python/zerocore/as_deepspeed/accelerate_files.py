"""Settings of accelerate: the environment of `accelerate launch --config_file` under mpirun (option --config_file of
as_deepspeed), and FSDP's keys and variables as a DeepSpeed config."""

import json
import os

from .. import _native
from ..ranks import ranks

# Keys of deepspeed_config, and the variables that accelerate's plugin reads for them.
_PLUGIN = {
    "zero_stage": "DEEPSPEED_ZERO_STAGE",
    "gradient_accumulation_steps": "GRADIENT_ACCUMULATION_STEPS",
    "gradient_clipping": "GRADIENT_CLIPPING",
    "offload_optimizer_device": "DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
    "offload_param_device": "DEEPSPEED_OFFLOAD_PARAM_DEVICE",
    "offload_optimizer_nvme_path": "DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH",
    "offload_param_nvme_path": "DEEPSPEED_OFFLOAD_PARAM_NVME_PATH",
    "zero3_init_flag": "DEEPSPEED_ZERO3_INIT",
    "zero3_save_16bit_model": "DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
    "deepspeed_config_file": "DEEPSPEED_CONFIG_FILE",
    "deepspeed_moe_layer_cls_names": "DEEPSPEED_MOE_LAYER_CLS_NAMES",
}
# Keys among these whose values accelerate's launcher writes in lower case.
_LOWER = ("gradient_clipping", "offload_optimizer_device", "offload_param_device", "zero3_init_flag",
          "zero3_save_16bit_model")


# Keys of the launcher, which mpirun replaces.
_LAUNCHER = ("deepspeed_hostfile", "deepspeed_multinode_launcher", "deepspeed_exclusion_filter", "deepspeed_inclusion_filter")
# Marks a config for accelerate's plugin that was made from FSDP's keys: {key: value} of those that nobody has set.
BY_FSDP = "zerocore_by_fsdp"
_OPEN = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
# Variables with which accelerate's launcher passes FSDP's keys on, without FSDP_.
_VARIABLES = ("VERSION", "SHARDING_STRATEGY", "RESHARD_AFTER_FORWARD", "OFFLOAD_PARAMS", "MIN_NUM_PARAMS", "AUTO_WRAP_POLICY",
              "TRANSFORMER_CLS_TO_WRAP", "BACKWARD_PREFETCH", "STATE_DICT_TYPE", "FORWARD_PREFETCH", "USE_ORIG_PARAMS",
              "CPU_RAM_EFFICIENT_LOADING", "SYNC_MODULE_STATES", "ACTIVATION_CHECKPOINTING",
              "ACTIVATION_CHECKPOINTING_OFFLOAD", "IGNORED_MODULES")


def use_config_file(path):
    """Makes every script of this process train with the file's settings, unless the script gives its own."""
    if not os.path.exists(path):
        raise _native.ConfigError(f"--config_file {path}: there is no such file")
    for name in [name for name in os.environ if name.startswith(("ACCELERATE_", "FSDP_"))]:
        del os.environ[name]
    os.environ.update(environment_of(path))
    os.environ["ACCELERATE_CONFIG_FILE"] = path


def environment_of(path):
    """Returns accelerate's variables for one of its files. The library's reader checks the file and turns FSDP's
    keys into a stage; files for plain data parallelism become stage 0. Raises ConfigError."""
    document = load(path)
    if not isinstance(document, dict):
        raise _native.ConfigError(f"--config_file {path}: expected a file of accelerate, with its keys in one object")
    mixed = str(document.get("mixed_precision", "no")).lower()
    found = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_MIXED_PRECISION": "no" if mixed in ("false", "none") else mixed}
    if str(document.get("distributed_type", "")).upper() != "DEEPSPEED":
        found["ACCELERATE_DEEPSPEED_CONFIG_FILE"] = json.dumps(
            _for_accelerate(json.loads(_native.Config.file_as_json(path))))
        tell(_native.Config.of_file(path, {}).notices)
        return found
    own = document.get("deepspeed_config") or {}
    if "deepspeed_config_file" not in own:  # else accelerate fills in values that are not known yet
        _native.Config.of_file(path, {})
    unknown = sorted(set(own) - set(_PLUGIN) - set(_LAUNCHER))
    if unknown:
        raise _native.ConfigError(f"--config_file {path}: deepspeed_config.{unknown[0]} is not known; it has "
                                  f"{', '.join(_PLUGIN)}")
    for key, name in _PLUGIN.items():
        value = own.get(key)
        if value is not None and str(value) != "":
            found[f"ACCELERATE_{name}"] = str(value).lower() if key in _LOWER else str(value)
    found["ACCELERATE_CONFIG_DS_FIELDS"] = ",".join(own)
    return found


def load(path):
    """Returns the contents of a YAML file."""
    import yaml
    with open(path, encoding="utf-8-sig") as file:
        return yaml.safe_load(file)


def use_fsdp_environment():
    """Makes this process train at the stage that FSDP's variables say, which accelerate's launcher or the script has set."""
    if os.environ.pop("ACCELERATE_USE_FSDP", "").lower() != "true":
        return
    keys = {name.lower(): os.environ.pop(f"FSDP_{name}") for name in _VARIABLES if f"FSDP_{name}" in os.environ}
    keys["transformer_layer_cls_to_wrap"] = keys.pop("transformer_cls_to_wrap", "None")
    # The launcher sets the strategies of both versions.
    if keys.setdefault("version", "1") == "2" or keys.get("reshard_after_forward", "true") not in ("true", "false"):
        keys.pop("sharding_strategy", None)
    else:
        keys.pop("reshard_after_forward", None)
    document = {"distributed_type": "FSDP", "fsdp_config": {
        f"fsdp_{key}": json.loads(value) if value in ("true", "false") or value.isdigit() else value
        for key, value in keys.items() if value != "None"}}
    os.environ.update(ACCELERATE_USE_DEEPSPEED="true", ACCELERATE_DEEPSPEED_CONFIG_FILE=json.dumps(
        stage_of(document, "the variables FSDP_* of accelerate launch")))


def stage_of(document, source):
    """Returns a DeepSpeed config for accelerate from FSDP's keys. Raises ConfigError that names the source."""
    text = json.dumps(document)
    tell(_native.Config.of_text(text, source, {}).notices)
    return _for_accelerate(json.loads(_native.Config.text_as_json(text, source)))


def _for_accelerate(document):
    """Returns a DeepSpeed config, which the library's reader has made from FSDP's keys, with "auto" for the values
    that accelerate and the Trainer fill in. Their bf16 and fp16 come from mixed_precision and from arguments."""
    return {**dict.fromkeys(_OPEN, "auto"), "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
            **{key: value for key, value in document.items() if key not in ("bf16", "fp16", "gradient_clipping")},
            BY_FSDP: {}}


def fill(config, accumulation, ranks_in_job):
    """Gives numbers to the values that are "auto" in a config from FSDP's keys, because scripts read them. A later prepare()
    or a Trainer sets them anew (reopen())."""
    if BY_FSDP not in config:
        return
    values = dict(zip(_OPEN, (accumulation * ranks_in_job, 1, accumulation, 0.0)))
    config[BY_FSDP] |= {key: values[key] for key in _OPEN if config.get(key) == "auto"}
    config.update(config[BY_FSDP])


def reopen(config):
    """Sets the values of fill() to "auto", unless the script has changed them. Returns their keys."""
    filled = config.get(BY_FSDP, {})
    keys = [key for key, value in filled.items() if config.get(key) == value]
    config.update(dict.fromkeys(keys, "auto"))
    filled.clear()
    return keys


def tell(notices):
    """Prints the reader's notices on rank 0, without those about batches and ranks, which the program and mpirun
    set."""
    of_others = ("the launcher's", "train_micro_batch_size_per_gpu", f"zero run -n {ranks().size}")
    if ranks().rank == 0:
        for notice in notices:
            if not any(text in notice for text in of_others):
                print(f"zero: {notice}", flush=True)
