"""deepspeed.utils: whole values of single parameters, by the parameter. Collective, between steps."""

from .zero import _engine_of


def safe_get_full_fp32_param(parameter):
    return _engine_of(parameter).read(parameter, "master")


def safe_get_full_grad(parameter):
    return _engine_of(parameter).read(parameter, "grad")


def safe_get_full_optimizer_state(parameter, name):
    return _engine_of(parameter).read(parameter, name)


def safe_set_full_fp32_param(parameter, values):
    _engine_of(parameter).write(parameter, values)
