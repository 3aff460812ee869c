"""peft: names that it adds, and adapters that programs merge into the weights for a moment, inside of
zero.GatheredParameters."""

import sys

# Texts that peft adds to the names of a model with adapters.
ADDED_NAMES = {"base_model.model.": "", ".base_layer.": ".", ".original_module.": "."}


def tuners_in(module):
    """Returns the parts of the module that merge and unmerge adapters."""
    tuners = sys.modules.get("peft.tuners.tuners_utils")
    return [] if tuners is None else [each for each in module.modules() if isinstance(each, tuners.BaseTuner)]


class Unmerging:
    """Follows a tuner until end(): a parameter says by `_zerocore_unmerged` which values, as mark_of() describes them, an
    unmerge has left: those of before but for rounding, which is no change that a program would keep."""

    def __init__(self, tuner, mark_of):
        self._tuner, self._mark_of = tuner, mark_of
        self._before = vars(tuner).get("unmerge_adapter")  # of a block around this one
        tuner.unmerge_adapter = self._unmerge

    def _unmerge(self):
        type(self._tuner).unmerge_adapter(self._tuner)
        layer = sys.modules["peft.tuners.tuners_utils"].BaseTunerLayer
        for module in self._tuner.model.modules():
            if isinstance(module, layer):
                for parameter in module.get_base_layer().parameters():
                    if hasattr(parameter, "_zerocore_gathered"):
                        parameter._zerocore_unmerged = self._mark_of(parameter)

    def end(self):
        """Gives the tuner the method that it had before."""
        del self._tuner.unmerge_adapter
        if self._before is not None:
            self._tuner.unmerge_adapter = self._before
