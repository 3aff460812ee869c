"""Errors for DeepSpeed's names, attributes and modules, that this package does not have; some with the reason."""

import importlib.abc
import sys

_TOPOLOGY = "each stage of a pipeline has neighboring ranks: give PipelineModule num_stages; engine.grid says where a rank is"
_SCHEDULES = "zero_core.pipeline.schedule of the config names the schedule, and the engine runs it"
_TENSOR = "there is no tensor parallelism from Python"
_SEQUENCE = "there is no sequence parallelism"
_KERNELS = "its kernels are not here; zerocore.initialize() of a model without an optimizer evaluates it"
_LAYERS = "the module's own layers are trained as they are"
_ONE_BIT = "its compression is not implemented; the config's wire formats compress communication"
_STAGES = ("the engine has one optimizer for all stages, which adds gradients in data_types.grad_accum_dtype; zero config "
           "explain says what memory a config needs")
_REFUSED = {
    "InferenceEngine": _KERNELS, "init_inference": _KERNELS, "DeepSpeedInferenceConfig": _KERNELS,
    "default_inference_config": _KERNELS,
    "DeepSpeedHybridEngine": "the engine generates at any stage by the model's own generate()",
    "DualPipeVEngine": _SCHEDULES, "DualPipeVModule": _SCHEDULES, "ProcessTopology": _TOPOLOGY,
    "tp_model_init": _TENSOR, "set_autotp_mode": _TENSOR, "replace_transformer_layer": _TENSOR,
    "record_tp_model_init_args": _TENSOR, "merge_tp_model_init_into_config": _TENSOR,
    "DeepSpeedTransformerLayer": _LAYERS, "DeepSpeedTransformerConfig": _LAYERS,
    "OneBitAdam": _ONE_BIT, "ZeroOneAdam": _ONE_BIT, "OnebitLamb": _ONE_BIT,
    "UlyssesSPAttentionHF": _SEQUENCE, "UlyssesSPDataLoaderAdapter": _SEQUENCE,
    "DeepSpeedConfig": "zero config check FILE reads a config, and engine.config is that of an engine",
    "SynchronizedWallClockTimer": "engine.last_step and the log of steps have what was measured",
    "ThroughputTimer": "engine.last_step and the log of steps have what was measured",
}
# Modules, including everything in them.
_REFUSED_MODULES = {
    "deepspeed.autotuning": "zerocore.compare_stages() tries stages with a model and its batches",
    "deepspeed.compression": "it trains models smaller, by quantization and pruning, and is no part of the engine",
    "deepspeed.elasticity": "a checkpoint loads at any number of ranks, and the batch is the config's",
    "deepspeed.inference": _KERNELS,
    "deepspeed.linear": "LoRA is peft's, and quantized weights are those that the model has",
    "deepspeed.model_implementations": _KERNELS,
    "deepspeed.module_inject": _TENSOR,
    "deepspeed.monitor": "the engine writes what the config's tensorboard and csv_monitor sections say",
    "deepspeed.moe": "experts are trained as the modules that they are; there is no expert parallelism from Python",
    "deepspeed.profiling": "torch.profiler measures the modules; the engine's own times are in its log",
    "deepspeed.runtime.domino": _TENSOR,
    "deepspeed.runtime.fp16.onebit": _ONE_BIT,
    "deepspeed.runtime.fp16": "the engine scales the loss itself (engine.last_step.loss_scale), and its checkpoints hold no "
                              "classes that a loader would have to allow",
    "deepspeed.runtime.hybrid_engine": "the engine generates at any stage by the model's own generate()",
    "deepspeed.runtime.pipe.p2p": _SCHEDULES,
    "deepspeed.runtime.pipe.schedule": _SCHEDULES,
    "deepspeed.runtime.pipe.topology": _TOPOLOGY,
    "deepspeed.runtime.sequence_parallel": _SEQUENCE,
    "deepspeed.runtime.swap_tensor": "offload is the config's: offload_optimizer and offload_param",
    "deepspeed.runtime.tensor_parallel": _TENSOR,
    "deepspeed.runtime.zero.stage3": _STAGES,
    "deepspeed.runtime.zero.stage_1_and_2": _STAGES,
    "deepspeed.sequence": _SEQUENCE,
    "deepspeed.ops.transformer": _LAYERS,
    "deepspeed.ops.sparse_attention": _LAYERS,
    "deepspeed.ops.random_ltd": "dropping of tokens is the model's own",
    "deepspeed.ops.aio": "offload is the config's: offload_optimizer and offload_param",
    "deepspeed.ops.op_builder": "nothing is compiled when a script runs",
    "deepspeed.nvme": "offload is the config's: offload_optimizer and offload_param",
    "deepspeed.io": "checkpoints are written by the engine",
}


def _reason(full, name):
    if name in _REFUSED:
        return _REFUSED[name]
    return next((why for module, why in _REFUSED_MODULES.items() if full == module or full.startswith(module + ".")), None)


def text_of(module, name):
    full = f"{module}.{name}"
    why = _reason(full, name)
    if why is not None:
        return f"{full}: zerocore.as_deepspeed refuses this name of DeepSpeed: {why}"
    return f"{full}: zerocore.as_deepspeed does not have this name of DeepSpeed"


def refuse_missing(module):
    """Returns the __getattr__ of a module of this package, which raises for a missing name."""
    if module in sys.modules and not hasattr(sys.modules[module], "__path__"):
        sys.modules[module].__path__ = []  # makes imports of modules below it reach the finder

    def missing(name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(text_of(module, name))
    return missing


def also_named(module, *names):
    """Makes the module importable under other names too, because DeepSpeed has its functions in several files."""
    for name in names:
        sys.modules[name] = sys.modules[module]


class _Finder(importlib.abc.MetaPathFinder):
    """The last finder: reports a module of this package that no other finder has found."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname.startswith("deepspeed."):
            # The error has no name, since `from deepspeed import x` suppresses one that has the module's name.
            raise ModuleNotFoundError(text_of(*fullname.rsplit(".", 1)))
        return None


if not any(type(finder).__name__ == "_Finder" and type(finder).__module__ == __name__ for finder in sys.meta_path):
    sys.meta_path.append(_Finder())
