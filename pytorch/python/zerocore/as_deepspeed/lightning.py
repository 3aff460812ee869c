"""Lightning's DeepSpeedStrategy over the engine, for its Trainer and for Fabric."""

import functools

from zerocore_startup import put

from .._native import UsageError
from ..initialize import thaw
from ..ranks import engines
from ..wrapping import replaces
from .trainer import end


def allow_cpu_ranks(module):
    """Lightning allows its DeepSpeed strategy only on GPUs; this allows it on CPU ranks."""
    strategy, validate = module.DeepSpeedStrategy, module._validate_device_index_selection

    @replaces(strategy, "setup_environment")
    def setup_environment(self, own):
        if isinstance(self.accelerator, module.CUDAAccelerator):
            return own(self)
        return super(strategy, self).setup_environment()

    def validate_devices(devices):
        if all(device.type == "cuda" for device in devices):
            validate(devices)

    put(module, "_validate_device_index_selection", validate_devices)


def end_engines(module):
    """Ends the engine of a Trainer's last fit(), validate(), test() or predict() before the next one makes its own."""

    @replaces(module.DeepSpeedStrategy, "setup")
    def setup(self, own, trainer):
        links = [getattr(parameter, "_zerocore_engine", None) for parameter in self.model.parameters()]
        for engine in [self.__dict__.pop("zerocore_engine", None), *(link() for link in links if link is not None)]:
            if engine is not None:
                end(engine)
        thaw(self.model)  # an evaluation has frozen it
        own(self, trainer)
        self.zerocore_engine = self.model  # the Trainer forgets it when the next call begins


def divide_once(module):
    """Lightning has divided the loss by accumulate_grad_batches, so the engine does not, and clips as DDP does."""

    @replaces(module.DeepSpeedPrecision, "backward")
    def backward(self, own, tensor, model, *args, **kwargs):
        return own(self, tensor, model, *args, scale_wrt_gas=False, **kwargs)


def accumulate(module):
    """Lightning decides which batches end a step, as it does for DDP: the last of an epoch too, after which it zeroes
    gradients. Otherwise it would call the engine's step() after each batch, and zero those of a step that goes on."""
    put(module.DeepSpeedStrategy, "handles_gradient_accumulation", False)


def clip(module):
    """Each call of the engine's step() ends a step, and clips to the norm of a script's own clip_gradients()."""

    @replaces(module.DeepSpeedPrecision, "clip_gradients")
    def clip_gradients(self, own, optimizer, clip_val=0.0, gradient_clip_algorithm="norm"):
        given = {id(optimizer), id(getattr(optimizer, "optimizer", None))}  # Lightning's wrapper has an optimizer
        engine = next((engine for engine in engines() if id(engine.optimizer) in given), None)
        if engine is None or not clip_val or clip_val == engine.gradient_clipping():
            return
        if getattr(gradient_clip_algorithm, "value", gradient_clip_algorithm) != "norm":
            raise UsageError("clip_gradients: gradient_clip_algorithm is 'value', and the engine clips by norm: take that")
        engine.step = functools.partial(type(engine).step, engine, max_norm=float(clip_val))

    @replaces(module.DeepSpeedPrecision, "optimizer_step")
    def optimizer_step(self, own, optimizer, model, closure, **kwargs):
        engine = model.trainer.model
        if engine.managed_gradient_accumulation() and engine.gradient_accumulation_steps() > 1:
            engine.set_gradient_accumulation_boundary(True)
        try:
            return own(self, optimizer, model, closure, **kwargs)
        finally:
            vars(engine).pop("step", None)


def step_engine(module):
    """Fabric calls optimizer.step(), which in DeepSpeed is a part of the engine's."""

    @replaces(module.DeepSpeedStrategy, "optimizer_step")
    def optimizer_step(self, own, optimizer, **kwargs):
        engine = next((engine for engine in engines() if engine.optimizer is optimizer), optimizer)
        return own(self, engine, **kwargs)
