"""PipelineModule and the specifications of layers, with DeepSpeed's names and arguments."""

import random
import sys
import weakref

import torch
from torch import nn

from .. import _native
from ..ranks import bytes_from, ranks
from ..saved_state import bytes_of
from .partition import first_units
from .stages import Stages, Unit, chunks_of, cut_ranks


class LayerSpec:
    """A layer that is constructed when PipelineModule needs it: `typename(*module_args, **module_kwargs)`."""

    def __init__(self, typename, *module_args, **module_kwargs):
        if not isinstance(typename, type) or not issubclass(typename, nn.Module):
            raise RuntimeError(f"LayerSpec: {typename!r} is no subclass of torch.nn.Module; LayerSpec only supports its subclasses")
        self.typename, self.module_args, self.module_kwargs = typename, module_args, module_kwargs

    def build(self, log=False):
        """Returns a new module."""
        return self.typename(*self.module_args, **self.module_kwargs)

    def __repr__(self):
        return f"{type(self).__name__}({self.typename.__name__})"


class TiedLayerSpec(LayerSpec):
    """A layer that all specifications of one key share, with all of its parameters. `forward_fn(module, inputs)` runs it in
    place of the module; `tied_weight_attr` names attributes that the module must have."""

    def __init__(self, key, typename, *module_args, forward_fn=None, tied_weight_attr=("weight",), **module_kwargs):
        super().__init__(typename, *module_args, **module_kwargs)
        self.key, self.forward_fn = key, forward_fn
        self.tied_weight_attr = [tied_weight_attr] if isinstance(tied_weight_attr, str) else list(tied_weight_attr)


class PipelineModule(Stages):
    """Layers in stages, for zerocore.initialize(). Layer i is given the outputs of layer i - 1, a tensor or a tuple.

    `layers`: specifications, modules or functions, or an nn.Sequential. A layer with parameters, and the layers without
    that follow, are a unit: gathered, run and, with an activation_checkpoint_interval above 0, recomputed together; stages are cut between units. Every rank
    constructs all layers one after another, from rank 0's random numbers, and keeps those of its stage, so that initial
    values are those of one stage. `loss_fn(outputs, labels)`; without one the last layer returns the loss.
    `partition_method`: see partition.first_units(). `chunks`: zero_core.pipeline.chunks of the config. Collective; other
    arguments as in DeepSpeed."""

    def __init__(self, layers, num_stages=None, topology=None, loss_fn=None, seed_layers=False, seed_fn=None, base_seed=1234,
                 partition_method="parameters", activation_checkpoint_interval=0, activation_checkpoint_func=None,
                 checkpointable_layers=None, dynamic_shape=False, chunks=1):
        super().__init__()
        if topology is not None:
            raise _native.UsageError("PipelineModule: topology gives ranks another order than that of stages, each of which has "
                                     "neighboring ranks: give num_stages")
        if num_stages is None:
            raise RuntimeError("PipelineModule: must provide num_stages")
        self.loss_fn = loss_fn
        self.activation_checkpoint_interval = activation_checkpoint_interval
        self._checkpoint = activation_checkpoint_func or _checkpoint
        self._checkpointable = checkpointable_layers
        self._specs = list(layers)
        self._seeds = (seed_fn or torch.manual_seed, base_seed) if seed_layers else None
        self.stage, self.chunks = cut_ranks(num_stages, "PipelineModule: num_stages"), chunks_of(num_stages, chunks)
        with _numbers_of_rank_0():
            counts = self._parameter_counts()
            self._units_of_layers(counts)
            chosen = [(layers, [_kind(self._specs[layer]) for layer in layers], sum(counts[layer] for layer in layers))
                      for layers in self._layers_of_units]
            self.first_units = first_units(chosen, num_stages, partition_method, len(self._specs), self.chunks)
            self._construct()

    def _parameter_counts(self):
        """Returns the number of parameters of each layer; of a key's layers the first one has them, and the others 1."""
        keys, counts = set(), []
        state = _random_states()
        for spec in self._specs:
            if isinstance(spec, TiedLayerSpec) and spec.key in keys:
                counts.append(1)
                continue
            keys.add(getattr(spec, "key", object()))
            module = _on_meta(spec) if isinstance(spec, LayerSpec) else spec
            counts.append(sum(p.numel() for p in module.parameters()) if isinstance(module, nn.Module) else 0)
        _set_random_states(state)
        return counts

    def _units_of_layers(self, counts):
        self._layers_of_units, begun = [], False
        for layer, count in enumerate(counts):
            if not self._layers_of_units or count and begun:
                self._layers_of_units.append([])
            begun = begun or count > 0
            self._layers_of_units[-1].append(layer)
        if not begun:
            raise _native.UsageError("PipelineModule: no layer has a parameter")
        for layers in self._layers_of_units:
            kind = next((_kind(self._specs[layer]) for layer in layers if counts[layer]))
            self.units.append(Unit(f"{layers[0]}.{kind}", [], []))

    def _construct(self):
        """Constructs all layers, one at a time, and keeps those of this stage."""
        own = {layer for unit in self.own_units for layer in self._layers_of_units[unit]}
        keys = {self._specs[layer].key for layer in own if isinstance(self._specs[layer], TiedLayerSpec)}
        tied, first_use = {}, {}  # first_use: {id of a parameter: (a weak reference to it, its name)}
        self.tied_modules = nn.ModuleDict()
        self._runs = {}
        for unit, layers in enumerate(self._layers_of_units):
            for layer in layers:
                spec, prefix = self._specs[layer], f"{layer}."
                if self._seeds is not None:
                    self._seeds[0](self._seeds[1] + layer)
                if isinstance(spec, TiedLayerSpec):
                    prefix = f"tied_modules.{spec.key}."
                    module = tied[spec.key] if spec.key in tied else spec.build()
                    tied[spec.key] = module
                    _check_attributes(spec, module)
                    if spec.key in keys and spec.key not in self.tied_modules:
                        self.tied_modules[spec.key] = module
                else:
                    module = spec.build() if isinstance(spec, LayerSpec) else spec
                    if layer in own and isinstance(module, nn.Module):
                        self.add_module(str(layer), module)
                self._note_parameters(self.units[unit], module, prefix, layer in own, first_use)
                if layer in own:
                    self._runs[layer] = _bound(spec, module)
        self._specs = [_kind(spec) for spec in self._specs]  # modules of other stages are the program's own from here on

    def _note_parameters(self, unit, module, prefix, here, first_use):
        if not isinstance(module, nn.Module):
            return
        for name, parameter in module.named_parameters(remove_duplicate=False):
            reference, first = first_use.get(id(parameter), (None, None))
            if reference is None or reference() is not parameter:
                first = prefix + name
                first_use[id(parameter)] = weakref.ref(parameter), first
                unit.owns.append(first)
            elif first not in unit.owns and first not in unit.uses:
                unit.uses.append(first)
            if here:
                others = self.tensors.setdefault(first, (parameter, []))[1]
                if prefix + name != first and prefix + name not in others:
                    others.append(prefix + name)

    def run(self, unit, inputs, batch):
        layers, is_tuple = self._layers_of_units[unit], isinstance(inputs, tuple)

        def run_all(*inputs):
            values = inputs if is_tuple else inputs[0]
            for layer in layers:
                values = self._runs[layer](values)
            return values

        given = inputs if is_tuple else (inputs,)
        recomputes = (self.activation_checkpoint_interval > 0 and torch.is_grad_enabled() and unit + 1 < len(self.units)
                      and self._is_checkpointable(layers))
        return self._checkpoint(run_all, *given) if recomputes else run_all(*given)

    def _is_checkpointable(self, layers):
        return self._checkpointable is None or any(self._specs[layer] in self._checkpointable for layer in layers)

    def loss_of(self, outputs, batch):
        return outputs if self.loss_fn is None else self.loss_fn(outputs, batch)


def _checkpoint(function, *inputs):
    return torch.utils.checkpoint.checkpoint(function, *inputs, use_reentrant=False)


def _kind(spec):
    if isinstance(spec, LayerSpec):
        return spec.typename.__name__
    return type(spec).__name__ if isinstance(spec, nn.Module) else getattr(spec, "__name__", type(spec).__name__)


def _bound(spec, module):
    if not callable(module):
        raise _native.UsageError(f"PipelineModule: a layer is a {type(module).__name__}; expected a LayerSpec, a module or a function")
    forward = getattr(spec, "forward_fn", None)
    return module if forward is None else lambda inputs: forward(module, inputs)


def _check_attributes(spec, module):
    for path in spec.tied_weight_attr:
        value = module
        for name in path.split("."):
            value = getattr(value, name, None)
        if value is None:
            raise _native.UsageError(f"PipelineModule: the layer tied by the key {spec.key!r}, a {type(module).__name__}, has no "
                                     f"attribute {path}, which tied_weight_attr names")


def _on_meta(spec):
    """Returns the module without memory, or as it is if its constructor cannot do without."""
    try:
        with torch.device("meta"):
            return spec.build()
    except Exception:  # noqa: BLE001: of the program's constructor; where values are needed it raises again
        return spec.build()


class _numbers_of_rank_0:
    """Inside, torch's generator continues from rank 0's state; a rank that began with another one has its own after."""

    def __enter__(self):
        job, self._before = ranks(), torch.get_rng_state()
        of_root = torch.frombuffer(bytearray(bytes_from(job, bytes_of(self._before) if job.rank == 0 else b"")), dtype=torch.uint8)
        self._differs = not torch.equal(of_root, self._before)
        torch.set_rng_state(of_root)

    def __exit__(self, kind, error, traceback):
        if self._differs:
            torch.set_rng_state(self._before)


def _random_states():
    numpy = sys.modules.get("numpy")
    return torch.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy else None


def _set_random_states(states):
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    if states[2] is not None:
        sys.modules["numpy"].random.set_state(states[2])
