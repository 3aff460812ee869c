from zerocore.optimizers import EngineOptimizer as DeepSpeedOptimizer

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)
ZeROOptimizer = DeepSpeedOptimizer


class _NoHooks:
    """Empty hooks for TRL, which removes an engine's hooks before it generates inside GatheredParameters and adds
    them again: this engine has none."""

    def __init__(self):
        self.module, self.forward_hooks, self.backward_hooks = self, [], []

    def named_parameters(self, recurse=True):
        return iter(())

    def ds_external_parameters(self):
        return iter(())

    def _register_deepspeed_module(self, module):
        """Does nothing: no hook was removed."""


DeepSpeedOptimizer.parameter_offload = _NoHooks()
