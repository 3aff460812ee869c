"""Loops with accelerate over the engine: their configs, FSDP's settings as a stage, and clipping."""

import contextlib
import inspect
import json
import os
import weakref

import torch

from .. import _native
from ..engine import Engine
from ..initialize import freeze
from ..passes import engine_of
from ..ranks import ranks
from ..succession import succeed
from ..wrapping import replaces
from .accelerate_files import BY_FSDP, fill, reopen, stage_of, tell, use_fsdp_environment

_said = set()


def _tell_once(text):
    if text not in _said:
        tell([text])
    _said.add(text)


def read_config_files(module):
    """Reads files and texts with the library's reader."""

    @replaces(module.HfDeepSpeedConfig, "__init__")
    def read(self, own, config_file_or_dict):
        if isinstance(config_file_or_dict, (str, os.PathLike)):
            name = os.fspath(config_file_or_dict)
            if os.path.exists(name):
                config_file_or_dict = json.loads(_native.Config.file_as_json(name))
            elif "{" in name:
                config_file_or_dict = json.loads(_native.Config.text_as_json(name, "DeepSpeed config"))
        own(self, config_file_or_dict)


# FSDP's settings become a stage of the engine.

def start_fsdp_alike(module):
    """Turns off the settings with which rank 0 alone loads weights, and sends them to the others."""

    @replaces(module.FullyShardedDataParallelPlugin, "__post_init__")
    def after_init(self, own):
        os.environ.update(FSDP_CPU_RAM_EFFICIENT_LOADING="false", FSDP_SYNC_MODULE_STATES="false")
        self.cpu_ram_efficient_loading = False
        self.sync_module_states = None
        own(self)

    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":  # from_pretrained() reads it
        os.environ.update(FSDP_CPU_RAM_EFFICIENT_LOADING="false")


def make_fsdp_a_stage(module):
    """Makes an Accelerator with FSDP's settings, by a plugin or accelerate's launcher, one with DeepSpeed's plugin."""
    signature = inspect.signature(module.Accelerator.__init__)

    @replaces(module.Accelerator, "__init__")
    def with_engine(self, own, *args, **kwargs):
        use_fsdp_environment()
        given = signature.bind(self, *args, **kwargs).arguments
        if given.get("fsdp_plugin") is not None:
            os.environ.pop("ACCELERATE_USE_FSDP", None)
            plugin = given.pop("fsdp_plugin")
            if not _has_plugin(module):
                given["deepspeed_plugin"] = module.DeepSpeedPlugin(hf_ds_config=stage_of(_of_plugin(plugin), "fsdp_plugin"))
        own(**given)
        _check_kind(self, module, given)
        if self.distributed_type == module.DistributedType.DEEPSPEED:
            fill(self.deepspeed_plugin.deepspeed_config, self.gradient_accumulation_steps, self.num_processes)

    @replaces(module.Accelerator, "_prepare_deepspeed")
    def prepare_deepspeed(self, own, *args):
        _refuse_several(module, args)
        evaluates = _engine_without(module, args)
        if evaluates is not None:
            return _train_later(self, evaluates, args)
        config = self.deepspeed_plugin.deepspeed_config
        opened = reopen(config)
        if "gradient_clipping" in opened:
            config["gradient_clipping"] = 0.0  # accelerate would fill in 1
        sizes = [each.batch_size for each in args if isinstance(each, torch.utils.data.DataLoader)]
        if "train_micro_batch_size_per_gpu" in opened and (not sizes or None in sizes):
            config["train_micro_batch_size_per_gpu"] = 1  # FSDP needs none, and the engine for its count of samples alone
        trained = [each for model in args if isinstance(model, torch.nn.Module) for each in model.parameters() if each.requires_grad]
        result = own(self, *args)
        for engine in (each for each in result if isinstance(each, Engine) and each.optimizer is None):
            _freeze_at_pass(engine, trained)
        if opened and not any(isinstance(each, torch.nn.Module) for each in args):  # with DeepSpeed schedules alone stay as they are
            result = tuple(self.prepare_scheduler(each) if isinstance(each, module.LRScheduler) else each for each in result)
        if opened:
            fill(config, self.gradient_accumulation_steps, self.num_processes)
            config[BY_FSDP] = {key: config[key] for key in opened}
        for engine in (each for each in result if isinstance(each, Engine)):
            if "gradient_clipping" in opened:
                _steps_later[engine] = False
            if engine.optimizer is not None and self.deepspeed_engine_wrapped.engine.optimizer is None:
                self.deepspeed_engine_wrapped = module.DeepSpeedEngineWrapper(engine)  # that one only evaluates
        return result

    @replaces(module.Accelerator, "prepare_optimizer")
    def prepare_optimizer(self, own, optimizer, *args, **kwargs):
        if self.distributed_type == module.DistributedType.DEEPSPEED:
            evaluates = _engine_without(module, [optimizer])
            if evaluates is not None:
                return _train_later(self, evaluates, [optimizer])[0]
        return own(self, optimizer, *args, **kwargs)

    @replaces(module.Accelerator, "backward")
    def backward(self, own, loss, **kwargs):
        if self.distributed_type == module.DistributedType.DEEPSPEED and self.deepspeed_engine_wrapped is None:
            raise _native.UsageError("accelerator.backward: this accelerator has no engine, which prepare() makes and "
                                     "prepare_model() does not: call model, optimizer = accelerator.prepare(model, optimizer)")
        return own(self, loss, **kwargs)


def _freeze_at_pass(engine, trained):
    """Leaves requires_grad of the parameters as it was until the first pass, since the program may choose those of its optimizer
    by it, which it prepares later."""
    for parameter in trained:
        vars(parameter).pop("_zerocore_frozen", None)
        parameter.requires_grad_(True)

    def freeze_rest(module, arguments):
        hook.remove()
        if engine.optimizer is None:
            freeze(trained)

    hook = engine.module.register_forward_pre_hook(freeze_rest)


def _engine_without(module, objects):
    """Returns the engine of a model that was prepared before its optimizer, as is usual with FSDP; None if there is none."""
    if any(isinstance(each, torch.nn.Module) for each in objects):
        return None
    for optimizer in (each for each in objects if isinstance(each, (torch.optim.Optimizer, module.DummyOptim))):
        groups = getattr(optimizer, "param_groups", None) or [{"params": list(getattr(optimizer, "params", []))}]
        for engine in (engine_of(each) for group in groups for each in group["params"] if isinstance(each, torch.Tensor)):
            if engine is not None and engine.optimizer is None:
                return engine
    return None


def _train_later(accelerator, evaluates, objects):
    """Prepares the optimizer, and what is given with it, with its model. The engine that the program was given for the model
    stands for the one that trains."""
    given = next((each for each in accelerator._models if each is evaluates), None)
    if given is None:
        raise _native.UsageError(f"accelerator.prepare: the optimizer has parameters of a {type(evaluates.module).__name__} that this "
                                 "accelerator has not prepared: give both to one call")
    accelerator._models = [each for each in accelerator._models if each is not given]
    accelerator.deepspeed_engine_wrapped = None
    engine, *prepared = accelerator._prepare_deepspeed(evaluates.module, *objects)
    succeed(given, engine)
    accelerator._models = [given if each is engine else each for each in accelerator._models]
    return tuple(prepared)


def _refuse_several(module, objects):
    """Raises UsageError for two optimizers or schedules of a model, of which accelerate drops all but the last."""
    for kind, known in (("optimizer", (torch.optim.Optimizer, module.DummyOptim)),
                        ("scheduler", (module.LRScheduler, module.DummyScheduler))):
        count = len({id(each) for each in objects if isinstance(each, known)})
        if count > 1:
            raise _native.UsageError(f"accelerator.prepare: {count} {kind}s, and the engine of a model has one; accelerate would drop "
                                     f"all but the last: give one {kind}, with groups of parameters that have rates of their own")


def _has_plugin(module):
    """Returns whether a plugin of DeepSpeed is in accelerate's state already, which accepts no second one."""
    state = module.AcceleratorState
    return state._shared_state != {} and state().distributed_type == module.DistributedType.DEEPSPEED


def _check_kind(accelerator, module, given):
    asked = os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true" or given.get("deepspeed_plugin") is not None
    if asked and accelerator.distributed_type != module.DistributedType.DEEPSPEED:
        raise _native.UsageError("Accelerator: accelerate leaves DeepSpeed out, with cpu=True or ACCELERATE_USE_CPU: remove "
                                 "them, the ranks of the engine are CPU ranks if torch has no GPU")
    by = {module.DistributedType.NO: "plain torch", module.DistributedType.MULTI_CPU: "torch's DistributedDataParallel",
          module.DistributedType.MULTI_GPU: "torch's DistributedDataParallel"}.get(accelerator.distributed_type)
    if by is not None:
        _tell_once(f"accelerate trains by {by}: nothing names DeepSpeed or FSDP. For the engine, "
                   "give python -m zerocore.as_deepspeed --config_file FILE, or the script a DeepSpeed config")


def _of_plugin(plugin):
    """Returns the plugin's fields under the names of accelerate's files. Raises UsageError for fields without a
    counterpart."""
    from torch.distributed.fsdp import CPUOffloadPolicy
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


# With FSDP's keys a loop clips by accelerator.clip_grad_norm_() or not at all, so accelerate's backward() leaves the
# step to that call or to optimizer.step().
_steps_later = weakref.WeakKeyDictionary()  # engine -> whether a backward() still waits for its step


def _step(engine, max_norm=None):
    _steps_later[engine] = False
    engine.step(max_norm=max_norm)


def step_after_clipping(module):
    """Leaves the step to clip_grad_norm_() or optimizer.step()."""

    @replaces(module.DeepSpeedEngineWrapper, "backward")
    def backward_alone(self, own, loss, sync_gradients=True, **kwargs):
        if self.engine.micro_batches.rank_independent:
            kwargs.pop("scale_wrt_gas", None)  # the Trainer's, which has not divided the loss (rank_independence.py)
        if self.engine not in _steps_later:
            return own(self, loss, sync_gradients=sync_gradients, **kwargs)
        if _steps_later[self.engine]:
            _step(self.engine)
        self.engine.set_gradient_accumulation_boundary(is_boundary=sync_gradients)
        self.engine.backward(loss, **kwargs)
        _steps_later[self.engine] = sync_gradients

    @replaces(module.DeepSpeedOptimizerWrapper, "step")
    def step_if_due(self, own):
        for engine, due in list(_steps_later.items()):
            if due and engine.optimizer is self.optimizer:
                _step(engine)
        return own(self)


def accumulate_by_hand(module):
    """Makes backward() inside no_sync() leave the step to a later one, which accelerate does with DistributedDataParallel
    alone, and inside trigger_sync_in_backward() make it."""
    for name, syncs in (("no_sync", False), ("trigger_sync_in_backward", True)):
        _set_sync_inside(module, name, syncs)


def _set_sync_inside(module, name, syncs):
    @replaces(module.Accelerator, name)
    @contextlib.contextmanager
    def inside(self, own, model):
        state = self.gradient_state
        before = state.sync_gradients
        if self.distributed_type == module.DistributedType.DEEPSPEED:
            state._set_sync_gradients(syncs)
        try:
            with own(self, model):
                yield
        finally:
            state._set_sync_gradients(before)


def clip_by_engine(module):
    """Makes clip_grad_norm_() the step, if that waits for it."""

    @replaces(module.Accelerator, "clip_grad_norm_")
    def clip_grad_norm_(self, own, parameters, max_norm, norm_type=2):
        if self.distributed_type == module.DistributedType.DEEPSPEED and self.deepspeed_engine_wrapped is not None:
            engine = self.deepspeed_engine_wrapped.engine
            if _steps_later.get(engine) and norm_type == 2:
                _refuse_part(engine, [parameters] if isinstance(parameters, torch.Tensor) else parameters)
                _step(engine, None if engine.gradient_clipping() == max_norm else max_norm)
                return torch.tensor(engine.get_global_grad_norm())
            _check_clipping(engine, max_norm, norm_type)
        return own(self, parameters, max_norm, norm_type)


def _refuse_part(engine, parameters):
    given = {id(parameter) for parameter in parameters}
    left_out = [name for name, parameter in engine.module.named_parameters() if engine.trains(parameter) and id(parameter) not in given]
    if left_out:
        raise _native.UsageError(f"accelerator.clip_grad_norm_: {len(left_out)} trained parameters are left out, {left_out[0]} "
                                 "among them, and the engine clips by the norm of all: give model.parameters()")


def _check_clipping(engine, max_norm, norm_type):
    """Prints a notice if clipping has no effect, because accelerate's backward() has done the step with the config's
    clipping."""
    own = engine.gradient_clipping()
    if norm_type == 2 and (own == max_norm or own <= 0 and max_norm in (0, float("inf"))):
        return
    clips = f"to the norm {own:g}" if own > 0 else "nothing"
    _tell_once(f"accelerator.clip_grad_norm_({max_norm}) does not act, as under DeepSpeed: the step clips {clips}, as "
               f'"gradient_clipping" of the config says; set that to {max_norm}, or to "auto" under the Trainer')
