"""What this package does not have is named, with the reason where there is one: attributes and modules."""

import importlib.abc
import sys

_REFUSED = {
    "InferenceEngine": "its kernels are not here; zerocore.initialize() of a model without an optimizer evaluates it",
    "init_inference": "its kernels are not here; zerocore.initialize() of a model without an optimizer evaluates it",
    "DeepSpeedHybridEngine": "the engine generates at any stage by the model's own generate()",
    "PipelineEngine": "there is no pipeline parallelism from Python",
    "PipelineModule": "there is no pipeline parallelism from Python",
    "LayerSpec": "there is no pipeline parallelism from Python",
    "TiedLayerSpec": "there is no pipeline parallelism from Python",
    "DualPipeVEngine": "there is no pipeline parallelism from Python",
    "DualPipeVModule": "there is no pipeline parallelism from Python",
    "tp_model_init": "there is no tensor parallelism from Python",
    "set_autotp_mode": "there is no tensor parallelism from Python",
    "replace_transformer_layer": "there is no tensor parallelism from Python",
    "DeepSpeedTransformerLayer": "the module's own layers are trained as they are",
    "DeepSpeedTransformerConfig": "the module's own layers are trained as they are",
    "OneBitAdam": "its compression is not here; the config's wire formats compress what travels",
    "ZeroOneAdam": "its compression is not here; the config's wire formats compress what travels",
    "OnebitLamb": "its compression is not here; the config's wire formats compress what travels",
    "UlyssesSPAttentionHF": "there is no sequence parallelism",
    "UlyssesSPDataLoaderAdapter": "there is no sequence parallelism",
}


def text_of(module, name):
    full = f"{module}.{name}"
    if name in _REFUSED:
        return f"{full}: zerocore.as_deepspeed refuses this name of DeepSpeed: {_REFUSED[name]}"
    return f"{full}: zerocore.as_deepspeed does not have this name of DeepSpeed"


def is_refused(name):
    return name in _REFUSED


def refuse_missing(module):
    """The __getattr__ of a module of this package."""
    if module in sys.modules and not hasattr(sys.modules[module], "__path__"):
        sys.modules[module].__path__ = []  # so that imports of modules below it come to the finder

    def missing(name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(text_of(module, name))
    return missing


class _Finder(importlib.abc.MetaPathFinder):
    """The last one: what no other has found of this package is missing."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname.startswith("deepspeed."):
            # Without a name, since `from deepspeed import x` passes over an error that has that of the module.
            raise ModuleNotFoundError(text_of(*fullname.rsplit(".", 1)))
        return None


if not any(type(finder).__name__ == "_Finder" and type(finder).__module__ == __name__ for finder in sys.meta_path):
    sys.meta_path.append(_Finder())
