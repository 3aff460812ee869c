"""The model's buffers. The engine owns their memory, but the model may put other tensors in their places."""

import torch

from . import _native
from .parts import named_parts


class Buffers:
    """The persistent buffers of a model, those that checkpoints contain, and its frozen parameters that hold bytes."""

    def __init__(self, model):
        self._model = model
        self._held = list(persistent(model))
        self._paths = {path for path, *_ in self._held}
        self._bytes = [(name, parameter) for name, parameter in named_parts(model).items() if not is_in_engine(parameter)]
        self._said = False

    def named(self):
        """Returns (name, buffer) of each buffer, under its first name."""
        return list({id(buffer): (path, buffer) for path, _, _, buffer in reversed(self._held)}.values())[::-1]

    def dtypes_without_name(self):
        """Returns {name: dtype} of those whose dtype safetensors has no name for: files have their bytes."""
        return {name: tensor.dtype for name, tensor in [*self._bytes, *self.named()]
                if _native.file_dtype(tensor.dtype) is None}

    def of_parameters(self):
        """Returns the names of frozen parameters that hold bytes."""
        return [name for name, _ in self._bytes]

    def take_back(self):
        """Call before the engine reads or writes buffers. A buffer that the model has replaced (self.count =
        self.count + 1) is copied into the engine's memory, and the module gets its original tensor again. Raises
        UsageError if the shape changed."""
        for path, owner, name, buffer in self._held:
            there = owner.get(name)
            if there is buffer:
                continue
            if there is None or there.shape != buffer.shape:
                now = "is gone" if there is None else f"has the shape {tuple(there.shape)}"
                raise _native.UsageError(
                    f"buffer {path} had the shape {tuple(buffer.shape)} at zerocore.initialize(), and {now}: checkpoints have "
                    "buffers of one shape; register it with persistent=False if no checkpoint needs it")
            with torch.no_grad():
                buffer.copy_(there)
            owner[name] = buffer

    def notice_on_save(self):
        """Returns a notice about persistent buffers added after zerocore.initialize(), once; else None."""
        added = [path for path, *_ in persistent(self._model) if path not in self._paths]
        if not added or self._said:
            return None
        self._said = True
        return (f"{len(added)} buffers were added after zerocore.initialize(), {', '.join(added[:3])} among them, and no "
                "checkpoint has them: register them before, or with persistent=False")


def persistent(model):
    """Yields (name, the dict that holds it, its name there, buffer) of the buffers that state_dict() has, shared ones
    under each of their names."""
    for path, module in model.named_modules(remove_duplicate=False):
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                yield f"{path}.{name}" if path else name, module._buffers, name, buffer


def is_in_engine(parameter):
    """Returns whether the engine can shard the parameter. Others hold bytes and stay whole in the module."""
    return not hasattr(parameter, "_zerocore_bytes")


def refuse_unfit(model):
    """Raises UsageError, with its name, for a buffer that no checkpoint could store."""
    for path, _, _, buffer in persistent(model):
        kind = ("on the meta device, without values" if buffer.is_meta else f"of the layout {buffer.layout}"
                if buffer.layout != torch.strided else "quantized" if buffer.is_quantized else "nested" if buffer.is_nested else "")
        if kind:
            raise _native.UsageError(
                f"zerocore.initialize: buffer {path} is {kind}, which checkpoints cannot store: give it values, keep its "
                "dense parts in buffers, or register it with persistent=False")


def note_shared_parts(model, settings):
    """Adds a notice for buffers that share a part of their memory with other buffers or parameters: in the engine each
    has memory of its own, so that what is written to one of them does not reach the others."""
    places = {}
    for path, tensor in [*((path, buffer) for path, _, _, buffer in persistent(model)), *named_parts(model).items()]:
        if tensor.numel() > 0 and not _native.is_at_rest(tensor) and not tensor.is_meta:
            begin = tensor.data_ptr()
            places.setdefault(memory_of(tensor), (begin, begin + tensor.numel() * tensor.element_size(), path))
    in_order = sorted(places.values())
    for (_, end, path), (begin, _, other) in zip(in_order, in_order[1:]):
        if begin < end:
            settings.note(f"{path} and {other} share a part of their memory; in the engine each has memory of its own, and "
                          "what is written to one of them does not reach the other")


def memory_of(tensor):
    """Equal for tensors that have all of their memory in common."""
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def add_advice(error, model):
    """Adds to torch's error about tensors of different dtypes that buffers keep their own, if the model computes in
    another."""
    text = str(error).lower()
    if not isinstance(error, (RuntimeError, ValueError)) or "dtype" not in text and "type" not in text or "float" not in text:
        return
    computed = {parameter.dtype for parameter in model.parameters()} & {torch.bfloat16, torch.float16}
    if not computed or not any(word in text for word in ("bfloat16", "half", "float16", "mixed dtype")):
        return
    others = [path for path, module in model.named_modules() for buffer in module._buffers.values()
              if buffer is not None and buffer.dtype == torch.float32 and getattr(module, "running_mean", None) is None]
    if others:
        dtype = "bf16" if torch.bfloat16 in computed else "fp16"
        error.args = (f"{error}\nzerocore: the model computes in {dtype}, and {len(others)} of its modules have buffers in fp32, "
                      f"{others[0] or 'the model itself'} among them. If the error is about one of them, set "
                      f"\"data_types\": {{\"buffer_dtype\": \"{dtype}\"}} in the config, which converts them, or convert "
                      "the buffer where forward() uses it", *error.args[1:])
