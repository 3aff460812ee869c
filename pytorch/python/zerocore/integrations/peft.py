"""peft: names that it adds, and adapters that programs merge into the weights for a moment, inside of
zero.GatheredParameters."""

import sys

from .. import _native

# Texts that peft adds to the names of a model with adapters.
ADDED_NAMES = {"base_model.model.": "", ".base_layer.": ".", ".original_module.": "."}


def tuners_in(module):
    """Returns the parts of the module that merge and unmerge adapters."""
    tuners = sys.modules.get("peft.tuners.tuners_utils")
    return [] if tuners is None else [each for each in module.modules() if isinstance(each, tuners.BaseTuner)]


def merged_units(model, name_of):
    """Returns (layer, {name: parameter}, other parameters) of a model with adapters, in its order: the parameters of the
    base under their names there, together with those of the adapters of their layer, which merge() adds. Without a layer:
    parameters that no adapter changes."""
    tuners = sys.modules.get("peft.tuners.tuners_utils")
    layers = {} if tuners is None else {
        path + ".": each for path, each in model.named_modules() if isinstance(each, tuners.BaseTunerLayer)}
    if not layers:
        raise _native.UsageError("engine.stream_weights: merge_adapters=True, and the model has no adapters of peft to merge")
    units, seen = {}, set()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        path = max((each for each in layers if name.startswith(each)), key=len, default=None)
        own = _base_name(name, model)
        is_base = path is None or name.startswith(path + "base_layer.")
        if path is not None and any(each != path and path.startswith(each) for each in layers):
            raise _native.UsageError(f"engine.stream_weights: merge_adapters=True, and {name} has adapters inside of adapters")
        if own is None or path is None and id(parameter) in seen:
            continue
        seen.add(id(parameter))
        layer, named, others = units.setdefault(path or name, (layers.get(path), {}, []))
        if is_base:
            named[own] = parameter
        else:
            others.append(parameter)
    return [unit for unit in units.values() if unit[1]]


def _base_name(name, model):
    """Returns the name in the base model; None for the original of a module that is trained and saved with the adapters."""
    if ".original_module." in name:
        return None
    for adapter in getattr(model, "active_adapters", ()):
        name = name.replace(f".modules_to_save.{adapter}.", ".")
    if ".modules_to_save." in name:
        return None
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


def merge(layer, values):
    """Adds the layer's active adapters to the base's values. `values`: {parameter: whole values} of all parameters of the
    layer; the layer itself stays as it was."""
    own = {parameter: parameter.data for parameter in values}
    merged, caches = list(layer.merged_adapters), dict(getattr(layer, "_caches", {}))
    try:
        for parameter, whole in values.items():
            parameter.data = whole
        layer.merge()
        values.update({parameter: parameter.data for parameter in values})
    finally:
        for parameter, before in own.items():
            parameter.data = before
        layer.merged_adapters[:] = merged
        if hasattr(layer, "_caches"):
            layer._caches.clear()
            layer._caches.update(caches)


def bytes_to_merge(named):
    """The bytes that peft takes for the change of the largest of these parameters: two in fp32, and one in the dtype."""
    return max(parameter.numel() * (8 + parameter.dtype.itemsize) for parameter in named.values())


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
