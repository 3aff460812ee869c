"""The values of a model's parameters: where they come from at start, and as files and dicts of whole weights."""

import json
import os
import weakref
from collections.abc import Mapping

import torch

from . import _native, checkpoints, module_state, streams, zero
from .buffers import is_in_engine
from .integrations import peft
from .parts import named_parts
from .ranks import text_of_root
from .whole_files import whole_file


class Weights:
    """The part of an engine for whole weights."""

    def take_values(self, without_values, slices):
        """Called once after the constructor, with the names of parameters without values and the Slices of
        zero.Init. Collective."""
        self._without_values, self._slices = without_values, slices
        if slices and not without_values:
            self._fill(slices)

    def _fill(self, names):
        """Copies the module's values to the parameters that have none in the native engine. Collective."""
        self.native.initialize_rest()
        slices, self._slices = self._slices, {}
        for name, (parameter, own) in slices.items():
            if name in names:
                self._write_initial(parameter, own.whole_values())
            own.drop()

    def waits_for_values(self):
        """Whether values that the parameters had before initialize() wait for those that have none yet."""
        return bool(self._slices)

    def initialize_rest(self, fill):
        """Calls `fill(name, tensor)` for each parameter without values: the module was constructed on the meta
        device, and load_weights() did not find it in the file. Rank 0's values are used. Collective."""
        names, self._without_values = self._without_values, set()
        self._fill(self._slices)
        for name, parameter in self.module.named_parameters():
            if name in names:
                values = torch.zeros(parameter.shape)
                with torch.no_grad():
                    fill(name, values)
                self._ranks.broadcast(values)
                self._write_initial(parameter, values)

    def _write_initial(self, parameter, values):
        rounds = self._settings.rounds_initial and is_in_engine(parameter)
        self.write(parameter, values.to(parameter.dtype) if rounds else values)

    def load_weights(self, path, allow_missing="", name_in_file=None):
        """Loads safetensors; each rank reads only its own elements. Returns the names that the file lacks, or has in
        another shape, which keep the module's values: `allow_missing` must cover them, names or patterns such as
        "head.*", separated by commas or in a list. A tied parameter may have any of its names in the file, or several if
        their values are equal.

        `name_in_file`: a function from a parameter's name to its name in the file, or a dict of texts and their
        replacements there. By default, a model with adapters of peft finds its names in a file without them."""
        path = checkpoints.folder(path, "engine.load_weights", "path")
        names = names_in_file(self.module, path, name_in_file, self._ranks)
        with self._guarded("load_weights", settles=True):
            patterns = allow_missing if isinstance(allow_missing, str) else ",".join(allow_missing)
            missing = self.native.load_weights(path, patterns, names)
        was_incomplete = bool(self._without_values)
        self._without_values &= set(missing)
        if was_incomplete and not self._without_values:
            self._fill(missing)
        return missing

    def export_model(self, directory, max_file_bytes=0):
        """Writes Hugging Face's safetensors files. Collective."""
        directory = checkpoints.folder(directory, "engine.export_model", "directory")
        with self._guarded("export_model", settles=True):
            module_state.check_export(self)
            self.native.export_model(directory, max_file_bytes)

    def stream_weights(self, budget, dtype=None, merge_adapters=False, ranks="all"):
        """Returns an iterator over (name, tensor) of the model's parameters, in its order, each whole, on the engine's device
        and in memory of its own. `ranks`: "all", or the one rank that gets them; for the others the iterator is empty, but
        all ranks must go through it. `budget`: the bytes that this takes on each rank, at most, with the tensor that the
        caller got last; those that it keeps besides are its own. Raises UsageError, with the least budget, if a parameter
        needs more. A rank that leaves the loop early takes part in the rest by itself. `dtype`: that of the tensors;
        otherwise the parameters' own. `merge_adapters`: values of a model of peft's as merge_and_unload() would leave them,
        under the names of the base; the model stays as it is. Collective."""
        rank = self._rank_of_stream(ranks, "stream_weights")
        with self._guarded("stream_weights", settles=True):
            return streams.WeightStream(self, budget, dtype, merge_adapters, rank)

    def _rank_of_stream(self, ranks, call):
        self._check_values()
        if ranks != "all" and not (isinstance(ranks, int) and 0 <= ranks < self._ranks.size):
            raise _native.UsageError(f'engine.{call}: ranks={ranks!r}; expected "all", or a rank from 0 to {self._ranks.size - 1}')
        return None if ranks == "all" else ranks

    def stream_changes(self, since, budget, ranks="all"):
        """Returns an iterator over (name, shape, flat indices, values) of exactly the elements whose bits have changed since
        the stream after which the receiver had the digest `since`, also if they have changed back, on the CPU, each once; of
        fp32 weights that the script writes in place, the whole parameter. A parameter with changes on several ranks comes
        several times. A changed element is six bytes or more: above a third of all, None is shorter. Its `head` goes first:
        WeightReceiver.receive() takes both. With None, and with another digest than that of the last call, all weights
        follow and head["since"] is None, since the engine knows the changes since its last call alone: receivers that are
        not in step need one of these each time, so send one stream to all. Rank 0's `since` counts.
        `budget`, `ranks`: as in stream_weights(). Frozen parameters that hold bytes are in streams of all weights alone.
        Collective."""
        rank = self._rank_of_stream(ranks, "stream_changes")
        if self.others:
            raise _native.UsageError("engine.stream_changes: the optimizer has parameters that the model does not have "
                                     f"({self.name_of(self.others[0])}), and a stream has the model's alone")
        with self._guarded("stream_changes", settles=True):
            self._changes_sent += 1
            return streams.ChangeStream(self, since, budget, rank, self._changes_sent)

    def load_stream(self, stream, allow_missing="", source=None):
        """Sets parameters to those of an iterator over (name, tensor), such as stream_weights() of another engine, one by one.
        `source`: the rank that has it; without one all ranks have equal streams. Names, shapes and dtypes must fit; 16-bit
        values may become fp32. `allow_missing`: as in load_weights(). Returns the names that were missing. If it raises an
        error, parameters before that have their new values. Collective."""
        with self._guarded("load_stream", settles=True):
            missing = streams.load(self, stream, allow_missing, source)
        self._without_values &= set(missing)
        return missing

    def begin_stream(self, stream):
        """Notes the stream that runs, and ends the one before."""
        if self._open_stream() is not None:
            self._open_stream().close("stream_weights")
        self._stream = weakref.ref(stream)

    def end_stream(self, stream):
        """Forgets the stream, if it is the one that runs."""
        if self._open_stream() is stream:
            self._stream = None

    def _open_stream(self):
        return None if self._stream is None else self._stream()

    def has_failed(self):
        """Returns whether an error has ended the engine."""
        return self._guard.failure is not None

    def zero_gather_16bit_weights_on_model_save(self):
        """Returns True: every stage can, and stage3_gather_16bit_weights_on_model_save need not be set."""
        return True

    def module_state_dict(self, exclude_frozen_parameters=False):
        """Returns what the model's state_dict() has, with whole values in the compute dtype, on each rank. Collective."""
        return module_state.gathered(self, None, exclude_frozen_parameters)

    def _zero3_consolidated_16bit_state_dict(self, exclude_frozen_parameters=False):
        """Returns the same on rank 0, and None on the other ranks."""
        return module_state.gathered(self, 0, exclude_frozen_parameters)

    def load_module_state_dict(self, checkpoint, strict=True, custom_load_fn=None, fetch_z3_params=True, z3_params_to_fetch=None,
                               allowed_missing_keys=None):
        """Loads the model's state from checkpoint["module"], or from a state_dict() itself, at each stage. Parameters take rank 0's
        values, and master weights follow. `custom_load_fn(src, dst)` loads in place of load_state_dict(). Raises RuntimeError, as
        load_state_dict() does, if `strict` and names are missing, other than `allowed_missing_keys`. Collective."""
        inside = checkpoint.get("module")
        state = inside if isinstance(inside, Mapping) else checkpoint
        with zero.GatheredParameters(self.module.parameters(), modifier_rank=0):
            if custom_load_fn is not None:
                custom_load_fn(src=state, dst=self.module)
                return
            missing, unexpected = self.module.load_state_dict(state, strict=strict and allowed_missing_keys is None)
        if strict and set(missing) - set(allowed_missing_keys or ()) | set(unexpected):
            raise RuntimeError(f"engine.load_module_state_dict: missing {sorted(set(missing) - set(allowed_missing_keys or ()))}, "
                               f"unexpected {sorted(unexpected)}")

    def offload_states(self, include=None, device="cpu", pin_memory=True, non_blocking=False):
        """Does nothing on CPU ranks, whose states are in host memory. Raises UsageError on GPUs."""
        if self.device.type != "cpu":
            raise _native.UsageError("engine.offload_states: the engine allocates its memory once, and does not move states between "
                                     'passes: "offload_optimizer": {"device": "cpu"} of the config keeps them in host memory')
        if getattr(device, "value", device) not in ("cpu", "none"):
            raise ValueError(f"engine.offload_states: device is {device!r}; expected cpu")

    def reload_states(self, non_blocking=False):
        """Does nothing: offload_states() has moved nothing."""

    def save_16bit_model(self, save_dir, save_filename="pytorch_model.bin", exclude_frozen_parameters=False):
        """Writes whole weights in the compute dtype by torch.save(), on rank 0. If that fails, the file stays as it was, and all
        ranks raise an error. Collective."""
        save_dir = checkpoints.folder(save_dir, "engine.save_16bit_model", "save_dir")
        state = self._zero3_consolidated_16bit_state_dict(exclude_frozen_parameters)

        def write():
            os.makedirs(save_dir, exist_ok=True)
            with whole_file(os.path.join(save_dir, save_filename)) as path:
                torch.save(state, path)
            return ""

        text_of_root(self._ranks, write)
        return True

    def save_fp16_model(self, save_dir, save_filename="pytorch_model.bin"):
        """Calls save_16bit_model(), under DeepSpeed's older name. Collective."""
        return self.save_16bit_model(save_dir, save_filename)


def names_in_file(module, path, rule, job):
    """Returns {name: name in the file} of the parameters whose names differ there. For tied parameters rank 0 looks
    up which of their names the file has. Collective."""
    if rule is None and hasattr(module, "peft_config"):
        own = [name for name, _ in module.named_parameters()]
        rule = None if text_of_root(job, lambda: str(_has_any(own, str(path)))) == "True" else peft.ADDED_NAMES
    if isinstance(rule, dict):
        rule = _replacing(rule)
    by_tensor = {}
    for name, tensor in (*named_parts(module, remove_duplicate=False).items(), *module.named_buffers(remove_duplicate=False)):
        by_tensor.setdefault(id(tensor), []).append(name)
    there = {own[0]: [name if rule is None else rule(name) for name in own] for own in by_tensor.values()}
    names = {name: own[0] for name, own in there.items()}
    ties = {name: own for name, own in there.items() if len(own) > 1}
    if ties:
        names.update(json.loads(text_of_root(job, lambda: json.dumps(_chosen(ties, str(path))))))
    return {name: there for name, there in names.items() if name != there}


def _has_any(names, path):
    """Whether the file has any of the model's own names, as one that was saved with the adapters' model has."""
    return bool(_native.names_in(path, names))


def _replacing(rule):
    def name_in_file(name):
        for text, there in rule.items():
            name = name.replace(text, there)
        return name
    return name_in_file


def _chosen(ties, path):
    """Returns, for each shared parameter, the name that the file has. Raises UsageError if the file has several with
    different values."""
    chosen = {}
    for own_name, names in ties.items():
        there = _native.names_in(path, list(dict.fromkeys(names)))
        for other in there[1:]:
            if not _native.are_equal(path, there[0], other):
                raise _native.UsageError(
                    f"{path} has {there[0]} and {other} with different values, and they are one parameter of the model: "
                    "untie them in the model (tie_word_embeddings=False), or remove one of them from the file")
        if there:
            chosen[own_name] = there[0]
    return chosen
