"""How units are cut into stages: DeepSpeed's partition_method."""

import re

from .. import _native


def first_units(units, stages, method, layer_count, chunks=1):
    """Returns the first unit of each run of units, of which each stage has `chunks`. `units`: (its layers' numbers, their class
    names, its parameters) each. `method`: "uniform" gives stages equal numbers of layers, "parameters" and "best" equal
    numbers of parameters, "type:REGEX" equal numbers of layers of matching classes, each as nearly as units allow; a list has
    the number of the first layer of each run. Raises UsageError."""
    runs = f"{stages} stages" if chunks == 1 else f"{stages * chunks} runs ({stages} stages of {chunks})"
    if len(units) < stages * chunks:
        raise _native.UsageError(f"PipelineModule: {runs} need as many layers with parameters, and there are "
                                 f"{len(units)} (the other layers run with the one before)")
    if isinstance(method, (list, tuple)):
        return _declared(units, stages * chunks, runs, method, layer_count)
    name = str(method).lower()
    if name == "uniform":
        weights = [len(layers) for layers, _, _ in units]
    elif name in ("parameters", "best"):
        weights = [count for _, _, count in units]
    elif name.startswith("type:"):
        pattern = re.compile(str(method)[len("type:"):], re.IGNORECASE)
        weights = [sum(bool(pattern.search(kind)) for kind in kinds) for _, kinds, _ in units]
        if not any(weights):
            kinds = sorted({kind for _, kinds, _ in units for kind in kinds})
            raise _native.UsageError(f"PipelineModule: partition_method is {method!r}, and no layer's class matches; there are "
                                     f"{', '.join(kinds)}")
    else:
        raise _native.UsageError(f"PipelineModule: partition_method is {method!r}; expected uniform, parameters, best, "
                                 "type:REGEX or a list with the number of each stage's first layer")
    return _native.cut_evenly(weights, stages, chunks)


def _declared(units, count, runs, first_layers, layer_count):
    first_layers = list(first_layers)
    if len(first_layers) == count + 1 and first_layers[-1] == layer_count:
        first_layers.pop()
    begins = {layers[0]: number for number, (layers, _, _) in enumerate(units)}
    missing = [layer for layer in first_layers if layer not in begins]
    if len(first_layers) != count or first_layers[0] != 0 or missing or sorted(set(first_layers)) != first_layers:
        raise _native.UsageError(
            f"PipelineModule: partition_method is {first_layers}; expected the numbers of the first layers of {runs}, "
            f"ascending from 0 on, each a layer with parameters, or 0: {', '.join(map(str, begins))}")
    return [begins[layer] for layer in first_layers]
