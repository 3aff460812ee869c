"""deepspeed.utils: reads and writes whole values of single parameters. Collective; call between steps. Raises
UsageError for a parameter that is in no engine."""

from .zero import _engine_of


def safe_get_full_fp32_param(parameter):
    """Returns the parameter's master weights, in its shape, as fp32 on its device."""
    return _engine_of(parameter).read(parameter, "master")


def safe_get_full_grad(parameter):
    """Returns the parameter's gradient, in its shape, as fp32: averaged over ranks and micro-batches, without loss
    scale."""
    return _engine_of(parameter).read(parameter, "grad")


def safe_get_full_optimizer_state(parameter, name):
    """Returns an optimizer state ("exp_avg", "exp_avg_sq", "momentum_buffer", ...) in the parameter's shape, as
    fp32."""
    return _engine_of(parameter).read(parameter, name)


def safe_set_full_fp32_param(parameter, values):
    """Sets the parameter and its master weights to `values`, a tensor of its shape that is equal on all ranks."""
    _engine_of(parameter).write(parameter, values)
