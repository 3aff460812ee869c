"""What `accelerate launch --config_file` puts into the environment, under mpirun: --config_file of as_deepspeed."""

import json
import os

from .. import _native
from ..ranks import ranks

# Keys of deepspeed_config by the variables in which accelerate's plugin finds them.
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
# The names among these whose values accelerate's launcher writes in small letters.
_LOWER = ("gradient_clipping", "offload_optimizer_device", "offload_param_device", "zero3_init_flag",
          "zero3_save_16bit_model")


# The launcher's, in whose place mpirun is.
_LAUNCHER = ("deepspeed_hostfile", "deepspeed_multinode_launcher", "deepspeed_exclusion_filter", "deepspeed_inclusion_filter")
BY_FSDP = "zerocore_by_fsdp"  # in a config for accelerate's plugin: it was made of FSDP's keys


def use_config_file(path):
    """Every script of this process trains by what the file says, if the script does not say more itself."""
    if not os.path.exists(path):
        raise _native.ConfigError(f"--config_file {path}: there is no such file")
    for name in [name for name in os.environ if name.startswith(("ACCELERATE_", "FSDP_"))]:
        del os.environ[name]
    os.environ.update(environment_of(path))
    os.environ["ACCELERATE_CONFIG_FILE"] = path


def environment_of(path):
    """The variables of accelerate for a file of its own. The library's reader checks it, and turns FSDP's keys into a
    stage; files for data parallelism alone are stage 0."""
    document = load(path)
    if not isinstance(document, dict):
        raise _native.ConfigError(f"--config_file {path}: it is no file of accelerate, whose keys lie in an object")
    mixed = str(document.get("mixed_precision", "no")).lower()
    found = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_MIXED_PRECISION": "no" if mixed in ("false", "none") else mixed}
    if str(document.get("distributed_type", "")).upper() != "DEEPSPEED":
        found["ACCELERATE_DEEPSPEED_CONFIG_FILE"] = json.dumps(
            for_accelerate(json.loads(_native.Config.file_as_json(path))))
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
    import yaml
    with open(path, encoding="utf-8-sig") as file:
        return yaml.safe_load(file)


def for_accelerate(document):
    """A DeepSpeed config that the library's reader has made of FSDP's keys, with what accelerate and the Trainer fill
    in. Their bf16 and fp16 come from mixed_precision and from arguments."""
    return {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
            "gradient_clipping": "auto", "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
            **{key: value for key, value in document.items() if key not in ("bf16", "fp16", "gradient_clipping")},
            BY_FSDP: True}


def tell(notices):
    """Rank 0 prints what the reader has to say. Batches and ranks are the program's and mpirun's."""
    of_others = ("the launcher's", "train_micro_batch_size_per_gpu", f"zero run -n {ranks().size}")
    if ranks().rank == 0:
        for notice in notices:
            if not any(text in notice for text in of_others):
                print(f"zero: {notice}", flush=True)
