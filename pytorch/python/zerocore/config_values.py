"""Values of the config by the names of DeepSpeed's engine, which scripts read."""

import types

_ZERO = "zero_optimization"
# Methods that return a value of the config as it is written, with DeepSpeed's default.
_VALUES = {
    "wall_clock_breakdown": ("wall_clock_breakdown", False), "memory_breakdown": ("memory_breakdown", False),
    "dump_state": ("dump_state", False), "dataloader_drop_last": ("dataloader_drop_last", False),
    "gradient_predivide_factor": ("gradient_predivide_factor", 1.0),
    "flops_profiler_enabled": ("flops_profiler.enabled", False),
    "zero_allgather_bucket_size": (f"{_ZERO}.allgather_bucket_size", 500_000_000),
    "zero_reduce_bucket_size": (f"{_ZERO}.reduce_bucket_size", 500_000_000),
    "zero_prefetch_bucket_size": (f"{_ZERO}.stage3_prefetch_bucket_size", 50_000_000),
    "zero_param_persistence_threshold": (f"{_ZERO}.stage3_param_persistence_threshold", 100_000),
    "zero_max_live_parameters": (f"{_ZERO}.stage3_max_live_parameters", 1_000_000_000),
    "zero_max_reuse_distance": (f"{_ZERO}.stage3_max_reuse_distance", 1_000_000_000),
    "zero_sub_group_size": (f"{_ZERO}.sub_group_size", 1_000_000_000),
    "zero_overlap_comm": (f"{_ZERO}.overlap_comm", None), "zero_reduce_scatter": (f"{_ZERO}.reduce_scatter", True),
    "zero_contiguous_gradients": (f"{_ZERO}.contiguous_gradients", True),
    "zero_hpz_partition_size": (f"{_ZERO}.zero_hpz_partition_size", 1),
    "zero_quantized_weights": (f"{_ZERO}.zero_quantized_weights", False),
    "zero_quantized_gradients": (f"{_ZERO}.zero_quantized_gradients", False),
}


class Batch(types.SimpleNamespace):
    """The values of DeepSpeed's engine._config that scripts read. They cannot be set."""

    def __setattr__(self, name, value):
        raise AttributeError(f"engine._config.{name} cannot be set: the engine has read its config; set_train_batch_size() and "
                             "set_train_micro_batch_size() change the batch")


class ConfigValues:
    """The engine's part that returns values of its config."""

    @property
    def _config(self):
        """The batch, the precision and the stage in effect, by the names of DeepSpeed's config object."""
        return Batch(train_batch_size=self.train_batch_size(), train_micro_batch_size_per_gpu=self.train_micro_batch_size_per_gpu(),
                     gradient_accumulation_steps=self.gradient_accumulation_steps(), gradient_clipping=self.gradient_clipping(),
                     zero_enabled=self.zero_optimization(), zero_optimization_stage=self.zero_optimization_stage(),
                     fp16_enabled=self.fp16_enabled(), bfloat16_enabled=self.bfloat16_enabled())

    def zero_cpu_offload(self):
        """Returns whether optimizer states are in host memory by offload_optimizer of the config."""
        offload = self.zero_offload_optimizer()
        return offload is not None and offload.device == "cpu"

    zero_use_cpu_optimizer = zero_cpu_offload

    def zero_offload_optimizer(self):
        """Returns the section offload_optimizer of the config, as an object with its keys; None without one."""
        return _section(self.config, "offload_optimizer")

    def zero_offload_param(self):
        """Returns the section offload_param of the config, as an object with its keys; None without one."""
        return _section(self.config, "offload_param")


def _section(config, name):
    section = (config.get(_ZERO) or {}).get(name)
    return None if section is None else types.SimpleNamespace(**{"device": "none", "nvme_path": None, "pin_memory": False, **section})


def _getter(name, path, default):
    def value(self):
        *sections, key = path.split(".")
        section = self.config
        for each in sections:
            section = section.get(each) or {}
        written = section.get(key, default)
        return int(written) if type(default) is int and isinstance(written, (float, str)) else written

    value.__name__, value.__doc__ = name, f"Returns {path} of the config as it is written, by default {default}."
    return value


for _name, (_path, _default) in _VALUES.items():
    setattr(ConfigValues, _name, _getter(_name, _path, _default))
