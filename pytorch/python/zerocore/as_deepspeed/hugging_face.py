"""Adapts accelerate and transformers to the engine, in the places that depend on the machine or on DeepSpeed's
launcher."""

import functools
import json
import os
import weakref

import torch
from torch.distributed.fsdp import CPUOffloadPolicy

from .. import _native
from ..construction import ZeroParamStatus
from ..engine import Engine
from ..ranks import ranks
from . import rank_independence, trainer
from .accelerate_files import BY_FSDP, for_accelerate, tell
from .after_import import after_import
from .patches import let_accelerate_see_cpu_ranks

_said = set()


def adapt():
    """Registers all changes; each happens when a script imports the module."""
    after_import("accelerate.state", let_accelerate_see_cpu_ranks)
    after_import("accelerate.accelerator", _adapt_accelerator)
    after_import("accelerate.utils.deepspeed", _read_config_files)
    after_import("transformers.training_args", _adapt_arguments)
    after_import("transformers.modeling_utils", _adapt_saving)
    rank_independence.adapt()
    trainer.adapt()


def _tell_once(text):
    if text not in _said and ranks().rank == 0:
        print(f"zero: {text}", flush=True)
    _said.add(text)


def _uses_deepspeed():
    return os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true"


def _read_config_files(module):
    """Reads files and texts with the library's reader, which accepts comments and reports errors at the user's own
    lines."""
    init = module.HfDeepSpeedConfig.__init__

    @functools.wraps(init)
    def read(self, config_file_or_dict):
        if isinstance(config_file_or_dict, (str, os.PathLike)):
            name = os.fspath(config_file_or_dict)
            if os.path.exists(name):
                config_file_or_dict = json.loads(_native.Config.file_as_json(name))
            elif "{" in name:
                config_file_or_dict = json.loads(_native.Config.text_as_json(name, "DeepSpeed config"))
        init(self, config_file_or_dict)

    module.HfDeepSpeedConfig.__init__ = read
    _step_after_clipping(module)


# FSDP's keys become a stage of the engine.

def _as_deepspeed_config(document, source):
    text = json.dumps(document)
    tell(_native.Config.of_text(text, source, {}).notices)
    return for_accelerate(json.loads(_native.Config.text_as_json(text, source)))


def _adapt_arguments(module):
    """Makes TrainingArguments(fsdp=...) train with the engine, and allows bf16 on CPU ranks."""
    arguments = module.TrainingArguments
    post_init = arguments.__post_init__

    @functools.wraps(post_init)
    def after_init(self):
        if self.fsdp and not self.deepspeed:
            self.deepspeed = _of_arguments(self)
            self.fsdp, self.fsdp_config = None, None
        post_init(self)

    arguments.__post_init__ = after_init
    if ranks().gpu < 0:
        module.is_torch_bf16_gpu_available = lambda: True


def _of_arguments(arguments):
    words = arguments.fsdp
    if isinstance(words, (list, tuple)):
        words = " ".join(str(getattr(word, "value", word)) for word in words)
    document = {"fsdp": True if words in (True, "True", "true", "1") else str(words)}
    given = arguments.fsdp_config
    if isinstance(given, str):
        given = _json_of(given)
    if given:
        document["fsdp_config"] = given
    return _as_deepspeed_config(document, "TrainingArguments")


def _json_of(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _adapt_accelerator(module):
    _translate_fsdp(module)
    clip = module.Accelerator.clip_grad_norm_

    @functools.wraps(clip)
    def clip_grad_norm_(self, parameters, max_norm, norm_type=2):
        if self.distributed_type == module.DistributedType.DEEPSPEED and self.deepspeed_engine_wrapped is not None:
            engine = self.deepspeed_engine_wrapped.engine
            if _steps_later.get(engine) and norm_type == 2:
                _step(engine, None if engine.gradient_clipping() == max_norm else max_norm)
                return torch.tensor(engine.get_global_grad_norm())
            _check_clipping(engine, max_norm, norm_type)
        return clip(self, parameters, max_norm, norm_type)

    module.Accelerator.clip_grad_norm_ = clip_grad_norm_


def _translate_fsdp(module):
    init, prepare = module.Accelerator.__init__, module.Accelerator._prepare_deepspeed

    @functools.wraps(init)
    def with_engine(self, *args, **kwargs):
        plugin = kwargs.get("fsdp_plugin")
        if plugin is None and os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
            plugin = module.FullyShardedDataParallelPlugin()
        if plugin is not None:
            os.environ.pop("ACCELERATE_USE_FSDP", None)
            kwargs["fsdp_plugin"] = None
            kwargs["deepspeed_plugin"] = module.DeepSpeedPlugin(
                hf_ds_config=_as_deepspeed_config(_of_plugin(plugin), "fsdp_plugin"))
        init(self, *args, **kwargs)
        if (_uses_deepspeed() or kwargs.get("deepspeed_plugin") is not None) and (
                self.distributed_type != module.DistributedType.DEEPSPEED):
            raise _native.UsageError("Accelerator: accelerate leaves DeepSpeed out, with cpu=True or ACCELERATE_USE_CPU: remove "
                                     "them, the ranks of the engine are CPU ranks if torch has no GPU")
        if self.num_processes > 1 and self.distributed_type == module.DistributedType.MULTI_CPU:
            _tell_once("accelerate trains by torch's DistributedDataParallel: nothing names DeepSpeed or FSDP. For the engine, "
                       "give python -m zerocore.as_deepspeed --config_file FILE, or the script a DeepSpeed config")

    @functools.wraps(prepare)
    def prepare_deepspeed(self, *args):
        config = self.deepspeed_plugin.deepspeed_config
        later = config.pop(BY_FSDP, False) and config.get("gradient_clipping") == "auto"
        if later:  # the Trainer would have replaced "auto"
            config["gradient_clipping"] = 0.0
        result = prepare(self, *args)
        for engine in (each for each in result if later and isinstance(each, Engine)):
            _steps_later[engine] = False
        return result

    module.Accelerator.__init__, module.Accelerator._prepare_deepspeed = with_engine, prepare_deepspeed


# With FSDP's keys a loop clips by accelerator.clip_grad_norm_() or not at all, so accelerate's backward() leaves the
# step to that call or to optimizer.step().
_steps_later = weakref.WeakKeyDictionary()  # engine -> whether a backward() still waits for its step


def _step(engine, max_norm=None):
    _steps_later[engine] = False
    engine.step(max_norm=max_norm)


def _step_after_clipping(module):
    backward, step = module.DeepSpeedEngineWrapper.backward, module.DeepSpeedOptimizerWrapper.step

    @functools.wraps(backward)
    def backward_alone(self, loss, sync_gradients=True, **kwargs):
        if self.engine.micro_batches.rank_independent:
            kwargs.pop("scale_wrt_gas", None)  # the Trainer's, which has not divided the loss (rank_independence.py)
        if self.engine not in _steps_later:
            return backward(self, loss, sync_gradients=sync_gradients, **kwargs)
        if _steps_later[self.engine]:
            _step(self.engine)
        self.engine.set_gradient_accumulation_boundary(is_boundary=sync_gradients)
        self.engine.backward(loss, **kwargs)
        _steps_later[self.engine] = sync_gradients

    @functools.wraps(step)
    def step_if_due(self):
        for engine, due in list(_steps_later.items()):
            if due and engine.optimizer is self.optimizer:
                _step(engine)
        return step(self)

    module.DeepSpeedEngineWrapper.backward, module.DeepSpeedOptimizerWrapper.step = backward_alone, step_if_due


def _check_clipping(engine, max_norm, norm_type):
    """Prints a notice if clipping has no effect, because accelerate's backward() has done the step with the config's
    clipping."""
    own = engine.gradient_clipping()
    if norm_type == 2 and (own == max_norm or own <= 0 and max_norm in (0, float("inf"))):
        return
    clips = f"to the norm {own:g}" if own > 0 else "nothing"
    _tell_once(f"accelerator.clip_grad_norm_({max_norm}) does not act, as under DeepSpeed: the step clips {clips}, as "
               f'"gradient_clipping" of the config says; set that to {max_norm}, or to "auto" under the Trainer')


def _of_plugin(plugin):
    """Returns the plugin's fields under the names of accelerate's files. Raises UsageError for fields without a
    counterpart."""
    for name in ("ignored_modules", "param_init_fn", "mixed_precision_policy"):
        if getattr(plugin, name, None) is not None:
            raise _native.UsageError(f"FullyShardedDataParallelPlugin.{name} is set, which the engine does not have: leave "
                                     "it out; mixed_precision of the Accelerator says the dtype")
    reshard = plugin.reshard_after_forward if plugin.fsdp_version == 2 or plugin.sharding_strategy is None else \
        plugin.sharding_strategy
    offload = getattr(plugin.cpu_offload, "offload_params", isinstance(plugin.cpu_offload, CPUOffloadPolicy))
    return {"distributed_type": "FSDP",
            "fsdp_config": {"fsdp_version": plugin.fsdp_version,
                            "fsdp_reshard_after_forward": reshard if isinstance(reshard, bool) else
                            getattr(reshard, "name", str(reshard)),
                            "fsdp_offload_params": offload,
                            "fsdp_activation_checkpointing": bool(plugin.activation_checkpointing)}}


def _adapt_saving(module):
    """Makes save_pretrained() write nothing on ranks that have no state: accelerate.get_state_dict() returns None to
    all ranks but 0."""
    save = module.PreTrainedModel.save_pretrained

    @functools.wraps(save)
    def save_pretrained(self, save_directory, is_main_process=True, state_dict=None, **kwargs):
        if not is_main_process and not state_dict and any(_is_sharded(parameter) for parameter in self.parameters()):
            return None
        return save(self, save_directory, is_main_process=is_main_process, state_dict=state_dict, **kwargs)

    module.PreTrainedModel.save_pretrained = save_pretrained


def _is_sharded(parameter):
    return getattr(parameter, "ds_status", None) == ZeroParamStatus.NOT_AVAILABLE
