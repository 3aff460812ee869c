"""peft's adapters, which programs merge into the weights for a moment, inside of zero.GatheredParameters."""

import functools
import sys


def follow_unmerging(mark_of):
    """From here on a parameter says by `_zerocore_unmerged` which values, as mark_of() describes them, an unmerge has left:
    those of before but for rounding, which is no change that a program would keep."""
    tuners = sys.modules.get("peft.tuners.tuners_utils")
    if tuners is None or hasattr(tuners.BaseTuner.unmerge_adapter, "notes_values"):
        return
    unmerge = tuners.BaseTuner.unmerge_adapter

    @functools.wraps(unmerge)
    def unmerge_adapter(self):
        unmerge(self)
        for module in self.model.modules():
            if isinstance(module, tuners.BaseTunerLayer):
                for parameter in module.get_base_layer().parameters():
                    if hasattr(parameter, "_zerocore_gathered"):
                        parameter._zerocore_unmerged = mark_of(parameter)

    unmerge_adapter.notes_values = True
    tuners.BaseTuner.unmerge_adapter = unmerge_adapter
