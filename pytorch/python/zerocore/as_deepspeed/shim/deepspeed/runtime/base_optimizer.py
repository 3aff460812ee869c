from zerocore.optimizers import EngineOptimizer as DeepSpeedOptimizer

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


class _NoHooks:
    """What TRL takes out before it generates inside of GatheredParameters, and puts back: the engine has no hooks there."""

    def __init__(self):
        self.module, self.forward_hooks, self.backward_hooks = self, [], []

    def named_parameters(self, recurse=True):
        return iter(())

    def ds_external_parameters(self):
        return iter(())

    def _register_deepspeed_module(self, module):
        """Nothing was taken out."""


DeepSpeedOptimizer.parameter_offload = _NoHooks()
