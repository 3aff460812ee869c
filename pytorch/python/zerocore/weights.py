"""Names of parameters in weight files, and whole weights as a state_dict."""

import json
import os

from . import _native
from .ranks import text_of_root

# Texts that peft adds to the names of a model with adapters.
_OF_PEFT = {"base_model.model.": "", ".base_layer.": ".", ".original_module.": "."}


def names_in_file(module, path, rule, job):
    """Returns {name: name in the file} of the parameters whose names differ there. For tied parameters rank 0 looks
    up which of their names the file has. Collective."""
    if rule is None and hasattr(module, "peft_config"):
        own = [name for name, _ in module.named_parameters()]
        rule = None if text_of_root(job, lambda: str(_has_any(own, str(path)))) == "True" else _OF_PEFT
    if isinstance(rule, dict):
        rule = _replacing(rule)
    by_tensor = {}
    for name, tensor in (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)):
        by_tensor.setdefault(id(tensor), []).append(name)
    there = {own[0]: [name if rule is None else rule(name) for name in own] for own in by_tensor.values()}
    names = {name: own[0] for name, own in there.items()}
    ties = {name: own for name, own in there.items() if len(own) > 1}
    if ties:
        names.update(json.loads(text_of_root(job, lambda: json.dumps(_chosen(ties, str(path))))))
    return {name: there for name, there in names.items() if name != there}


def _has_any(names, path):
    """Whether the file has any of the model's own names, as one that was saved with the adapters' model has."""
    return not _tensors(path).keys().isdisjoint(names)


def _replacing(rule):
    def name_in_file(name):
        for text, there in rule.items():
            name = name.replace(text, there)
        return name
    return name_in_file


def _chosen(ties, path):
    """Returns, for each shared parameter, the name that the file has. Raises UsageError if the file has several with
    different values."""
    tensors = _tensors(path)
    chosen = {}
    for own_name, names in ties.items():
        there = [name for name in dict.fromkeys(names) if name in tensors]
        for other in there[1:]:
            if not _equal(tensors[there[0]], tensors[other]):
                raise _native.UsageError(
                    f"{path} has {there[0]} and {other} with different values, and they are one parameter of the model: "
                    "untie them in the model (tie_word_embeddings=False), or remove one of them from the file")
        if there:
            chosen[own_name] = there[0]
    return chosen


def _tensors(path):
    """Returns {name: (file, dtype, shape, first byte, end)}; empty if it is no safetensors file, which the engine
    reports later."""
    try:
        return {name: place for file in _files(path) for name, place in _header(file)}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _files(path):
    if not os.path.isdir(path):
        return [path]
    index = os.path.join(path, "model.safetensors.index.json")
    if not os.path.exists(index):
        return [os.path.join(path, "model.safetensors")]
    with open(index, encoding="utf-8") as file:
        return [os.path.join(path, name) for name in sorted(set(json.load(file)["weight_map"].values()))]


def _header(path):
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(min(size, 64 << 20)))
    for name, about in header.items():
        if name != "__metadata__":
            begin, end = about["data_offsets"]
            yield name, (path, about["dtype"], about["shape"], 8 + size + begin, 8 + size + end)


def _equal(here, there):
    if here[1:3] != there[1:3]:
        return False
    (name, *_, begin, end), (other_name, *_, other, _) = here, there
    with open(name, "rb") as one, open(other_name, "rb") as two:
        one.seek(begin)
        two.seek(other)
        while begin < end:
            count = min(4 << 20, end - begin)
            if one.read(count) != two.read(count):
                return False
            begin += count
    return True


def gathered(engine, keeps, exclude_frozen_parameters):
    """Returns {name: whole values in the compute dtype} of an engine's module, with buffers; None on ranks that do
    not keep them. Collective."""
    state, read = {}, {}
    for name, parameter in engine.module.named_parameters(remove_duplicate=False):
        if exclude_frozen_parameters and not parameter.requires_grad:
            continue
        if id(parameter) not in read:  # else it is tied, also in the file
            values = engine.read(parameter)
            read[id(parameter)] = values.to(parameter.dtype) if keeps else None
        state[name] = read[id(parameter)]
    if not keeps:
        return None
    saved = engine.module.state_dict(keep_vars=True).keys()  # without buffers that are not saved
    for name, buffer in engine.module.named_buffers():
        if name in saved:
            state[name] = buffer.detach().clone()
    return state
