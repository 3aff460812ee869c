"""Adapts Lightning's DeepSpeedStrategy to the engine."""

import functools

from .after_import import after_import


def adapt():
    for package in ("lightning.pytorch", "pytorch_lightning"):
        after_import(f"{package}.strategies.deepspeed", _allow_cpu_ranks)


def _allow_cpu_ranks(module):
    """Lightning allows its DeepSpeed strategy only on GPUs; this allows it on CPU ranks."""
    strategy = module.DeepSpeedStrategy
    set_up, validate = strategy.setup_environment, module._validate_device_index_selection

    @functools.wraps(set_up)
    def setup_environment(self):
        if isinstance(self.accelerator, module.CUDAAccelerator):
            return set_up(self)
        return super(strategy, self).setup_environment()

    @functools.wraps(validate)
    def validate_devices(devices):
        if all(device.type == "cuda" for device in devices):
            validate(devices)

    strategy.setup_environment, module._validate_device_index_selection = setup_environment, validate_devices
