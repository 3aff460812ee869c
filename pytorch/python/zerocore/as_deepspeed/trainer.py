"""The engines of transformers' Trainer: one for each train(), and one for an evaluation before the first, of one model."""

import functools

from .. import _native
from ..initialize import thaw
from ..units import is_in_engine
from .accelerate_files import tell
from .after_import import after_import


def adapt():
    """Registers all changes; each happens when a script imports the module."""
    after_import("accelerate.accelerator", _give_values_back)
    after_import("transformers.integrations.deepspeed", _adapt_init)


def _give_values_back(module):
    """The Trainer frees its engine before it makes the next one of the same model. After a failure there are no values to
    give back."""
    free = module.Accelerator.free_memory

    @functools.wraps(free)
    def free_memory(self, *objects):
        wrapped = getattr(self, "deepspeed_engine_wrapped", None)
        engine = wrapped.engine if wrapped is not None and not objects else None
        if engine is not None and engine._guard.failure is None and engine._successor is None:
            _end(engine)
        return free(self, *objects)

    module.Accelerator.free_memory = free_memory


def _end(engine):
    """Ends the engine. Its model has all values again, whole on each rank."""
    values = [(parameter, engine.read(parameter).to(parameter.dtype)) for parameter in engine.module.parameters()
              if is_in_engine(parameter)]
    rounded = {str(parameter.dtype).removeprefix("torch.") for parameter, _ in values} - {"float32"}
    if rounded:
        tell([f"the next engine of {type(engine.module).__name__} starts from its weights, rounded to {', '.join(sorted(rounded))}"])
    engine.destroy()
    for parameter, value in values:
        _native.give_memory(parameter, value)


def _adapt_init(module):
    """Lets the Trainer evaluate before it trains, at every stage; train more than once; and train with
    Trainer(optimizers=(optimizer, scheduler)), which transformers drops under DeepSpeed."""
    init = module.deepspeed_init

    @functools.wraps(init)
    def deepspeed_init(trainer, num_training_steps, inference=False):
        document = trainer.accelerator.state.deepspeed_plugin.hf_ds_config
        if inference:
            document.trainer_config_finalize(trainer.args, trainer.model, num_training_steps)
            trainer._zerocore_later = {key: document.config.pop(key) for key in ("optimizer", "scheduler")
                                       if key in document.config}
            return None, None
        document.config.update(trainer.__dict__.pop("_zerocore_later", {}))
        trainer.model_wrapped = trainer.model  # an earlier engine is in its place
        thaw(trainer.model)  # an evaluation without an optimizer has frozen it
        if hasattr(trainer, "_zerocore_given"):
            tell(["Trainer.train() was called again: the weights stay, and the optimizer's states begin anew, as with DeepSpeed"])
        else:  # later there are the engine's in their places
            trainer._zerocore_given = trainer.optimizer, trainer.lr_scheduler
        return _with_given(init, trainer, num_training_steps, document.config, *trainer._zerocore_given)

    module.deepspeed_init = deepspeed_init


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
