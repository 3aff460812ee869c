"""The Trainer of transformers: its arguments, what it saves, and its engines, one for each train(), and one for an
evaluation before the first, of one model."""

import importlib
import json
import sys

from zerocore_startup import put

from .. import _native
from ..construction import ZeroParamStatus
from ..initialize import thaw
from ..ranks import ranks
from ..units import is_in_engine
from ..wrapping import replaces
from .accelerate_files import reopen, stage_of, tell


def adapt_arguments(module):
    """Makes TrainingArguments(fsdp=...) train with the engine, and allows bf16 on CPU ranks."""

    @replaces(module.TrainingArguments, "__post_init__")
    def after_init(self, own):
        if self.fsdp and not self.deepspeed:
            self.deepspeed = _of_arguments(self)
            self.fsdp, self.fsdp_config = None, None
        own(self)

    has_bf16 = module.is_torch_bf16_gpu_available
    put(module, "is_torch_bf16_gpu_available", lambda: ranks().gpu < 0 or has_bf16())


def _of_arguments(arguments):
    words = arguments.fsdp
    if isinstance(words, (list, tuple)):
        words = " ".join(str(getattr(word, "value", word)) for word in words)
    document = {"fsdp": True if words in (True, "True", "true", "1") else str(words)}
    given = arguments.fsdp_config
    if isinstance(given, str):
        with open(given, encoding="utf-8") as file:
            given = json.load(file)
    if given:
        document["fsdp_config"] = given
    return stage_of(document, "TrainingArguments")


def adapt_saving(module):
    """Makes save_pretrained() write nothing on ranks that have no state: accelerate.get_state_dict() returns None to
    all ranks but 0."""

    @replaces(module.PreTrainedModel, "save_pretrained")
    def save_pretrained(self, own, save_directory, is_main_process=True, state_dict=None, **kwargs):
        if not is_main_process and not state_dict and any(_is_sharded(parameter) for parameter in self.parameters()):
            return None
        return own(self, save_directory, is_main_process=is_main_process, state_dict=state_dict, **kwargs)


def _is_sharded(parameter):
    return getattr(parameter, "ds_status", None) == ZeroParamStatus.NOT_AVAILABLE


def complete_configs(module):
    """Loads the module again if it was imported when no deepspeed was found: its configs are empty classes then. Functions
    that other modules have of it use the new classes."""
    if module.DeepSpeedConfig is not object or not module.is_accelerate_available():
        return
    importlib.reload(module)
    package = sys.modules["transformers.integrations"]
    for name in ("HfDeepSpeedConfig", "HfTrainerDeepSpeedConfig"):
        if name in vars(package):  # a package that imports names at their first use
            put(package, name, getattr(module, name))


def fill_fsdp_values(module):
    """Lets the arguments set the values that FSDP's keys have left open."""

    @replaces(module.HfTrainerDeepSpeedConfig, "trainer_config_process")
    def process(self, own, *args, **kwargs):
        reopen(self.config)
        return own(self, *args, **kwargs)


def give_values_back(module):
    """The Trainer frees its engine before it makes the next one of the same model."""

    @replaces(module.Accelerator, "free_memory")
    def free_memory(self, own, *objects):
        wrapped = getattr(self, "deepspeed_engine_wrapped", None)
        if wrapped is not None and not objects:
            end(wrapped.engine)
        return own(self, *objects)


def end(engine):
    """Ends the engine, whose model then has all values, whole on each rank. After a failure there are none. Collective."""
    if engine.native is None or engine._guard.failure is not None or engine._successor is not None:
        return
    inside = [tensor for tensor in engine._tensors if is_in_engine(tensor)]
    rounded = {str(parameter.dtype).removeprefix("torch.") for parameter in inside} - {"float32"}
    if rounded:
        tell([f"the next engine of {type(engine.module).__name__} starts from its weights, rounded to {', '.join(sorted(rounded))}"])
    # Those that are not sharded keep their values by themselves.
    values = [engine.read(parameter).to(parameter.dtype) for parameter in inside] if engine._rests_sharded() else []
    engine.destroy()
    for parameter, value in zip(inside, values):
        _native.give_memory(parameter, value)


def adapt_init(module):
    """Lets the Trainer evaluate before it trains, at every stage; train more than once; and train with
    Trainer(optimizers=(optimizer, scheduler)), which transformers drops under DeepSpeed."""
    init = module.deepspeed_init

    def deepspeed_init(trainer, num_training_steps, inference=False):
        document = trainer.accelerator.state.deepspeed_plugin.hf_ds_config
        if inference:
            document.trainer_config_finalize(trainer.args, trainer.model, num_training_steps)
            trainer._zerocore_later = {key: document.config.pop(key) for key in ("optimizer", "scheduler")
                                       if key in document.config}
            return None, None
        document.config.update(trainer.__dict__.pop("_zerocore_later", {}))
        _note_late_callbacks(trainer)
        trainer.model_wrapped = trainer.model  # an earlier engine is in its place
        thaw(trainer.model)  # an evaluation without an optimizer has frozen it
        if hasattr(trainer, "_zerocore_given"):
            tell(["Trainer.train() was called again: the weights stay, and the optimizer's states begin anew, as with DeepSpeed"])
        else:  # later there are the engine's in their places
            trainer._zerocore_given = trainer.optimizer, trainer.lr_scheduler
        return _with_given(init, trainer, num_training_steps, document.config, *trainer._zerocore_given)

    put(module, "deepspeed_init", deepspeed_init)


def _note_late_callbacks(trainer):
    """Tells of callbacks of the script that come before a step of torch's, and here after the engine's."""
    late = [type(each) for each in trainer.callback_handler.callbacks if hasattr(each, "on_pre_optimizer_step")]
    plain = importlib.import_module("transformers").TrainerCallback.on_pre_optimizer_step
    names = sorted({kind.__name__ for kind in late if kind.on_pre_optimizer_step is not plain
                    and not kind.__module__.startswith(("transformers.", "trl."))})
    if names:
        tell([f"on_pre_optimizer_step() of {', '.join(names)} is called after the step, which accelerator.backward() has made, as with "
              "DeepSpeed: what it does to gradients has no effect"])


def _with_given(init, trainer, num_training_steps, config, optimizer, scheduler):
    for key, given in (("optimizer", optimizer), ("scheduler", scheduler)):
        if given is not None and key in config:
            raise _native.UsageError(f"Trainer(optimizers=...) has a {type(given).__name__}, and the DeepSpeed config has "
                                     f'"{key}": leave one of them out')

    def create_optimizer(model=None):
        trainer.optimizer = optimizer
        return optimizer

    if optimizer is not None:
        trainer.create_optimizer = create_optimizer
    try:
        made, own = init(trainer, num_training_steps)
    finally:
        trainer.__dict__.pop("create_optimizer", None)
    return made, own if scheduler is None else scheduler
