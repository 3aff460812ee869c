"""Norms whose statistics are fp32 while their weights are bf16 or fp16."""

import torch
from torch.overrides import TorchFunctionMode

from .passes import Forward


def allow_fp32_statistics(model):
    """torch's batch_norm() and instance_norm() refuse statistics of another dtype than their weights; under bf16 and fp16
    statistics stay fp32, so that in the model's norms weights join them there. Calls that torch takes are as before."""
    for module in model.modules():
        statistics = getattr(module, "running_mean", None)
        if isinstance(statistics, torch.Tensor) and statistics.dtype == torch.float32:
            module.forward = _NormForward(module)


class _NormForward(Forward):
    """The forward() of a norm with statistics in fp32; it stays at the end of an engine, since the dtypes do."""

    def __call__(self, *args, **kwargs):
        with _Fp32Statistics():
            return self._call(*args, **kwargs)

    def __deepcopy__(self, memo):
        """A copy in memory, as of an average of weights, has these dtypes too."""
        copied = memo.get(id(self._module()))
        return super().__deepcopy__(memo) if self._own is not None or copied is None else type(self)(copied)


class _Fp32Statistics(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in _NORMS:
            return _with_fp32_statistics(function, *args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))


_NORMS = (torch.nn.functional.batch_norm, torch.nn.functional.instance_norm)


def _with_fp32_statistics(norm, input, running_mean=None, running_var=None, weight=None, bias=None, *args, **kwargs):
    if running_mean is not None and weight is not None and running_mean.dtype == torch.float32:
        weight = weight.float()
        bias = None if bias is None else bias.float()
    return norm(input, running_mean, running_var, weight, bias, *args, **kwargs)
