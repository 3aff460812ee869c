"""Decoders of transformers in stages: the embeddings, each block, and the last norm with the head and its loss are a unit each.

The model's own forward() prepares what blocks are given (masks, positions): it runs with stand-ins for what is not a unit's
turn, and the blocks run with the arguments that their stand-ins have noted."""

import torch
from torch import nn

from .. import _native
from .partition import first_units
from .stages import Stages, Unit, chunks_of, cut_ranks


class _Reached(Exception):
    """Leaves the model's forward() at the last block whose arguments are needed."""


class _MicroBatch:
    """A micro-batch with the arguments that the blocks of this stage are given for it."""

    def __init__(self, values):
        self.values, self.arguments = values, {}


class _BlockStandIn(nn.Module):
    """Stands at a block's place, with the block's plain attributes, which the loop over blocks may read."""

    def __init__(self, owner, number, block):
        super().__init__()
        self.__dict__["_at_block"] = lambda args, kwargs: owner._at_block(number, args, kwargs)
        self.__dict__.update({name: value for name, value in vars(block).items() if not name.startswith("_") and name != "training"})

    def forward(self, *args, **kwargs):
        return self._at_block(args, kwargs)


class _EmbeddingStandIn(nn.Module):
    """Stands at the place of a module before the blocks: runs it in the first unit, and returns zeros of its shape in others."""

    def __init__(self, owner, module, here):
        super().__init__()
        self.__dict__["_owner"], self.__dict__["_real"] = owner, module if here else None
        self._dim = getattr(module, "embedding_dim", None)
        self.__dict__.update({name: value for name, value in vars(module).items() if not name.startswith("_") and name != "training"})

    def forward(self, *args, **kwargs):
        if self._owner._embeds:
            return self._real(*args, **kwargs)
        given = next(each for each in [*args, *kwargs.values()] if isinstance(each, torch.Tensor))
        return given if self._dim is None else torch.zeros(*given.shape, self._dim, dtype=self._owner._dtype, device=given.device)


class DecoderStages(Stages):
    """A decoder of transformers in stages, whose modules it takes. Micro-batches are dicts with input_ids and labels, and what else forward() takes. Every stage
    reads them. Collective; raises UsageError for other models."""

    reads_batches = True

    def __init__(self, model, stages, partition, chunks=1):
        super().__init__()
        _refuse_unfit(model, stages)
        self._path, blocks = _blocks_of(model)
        before, after, self._returns_tuple = _probe(model, self._path, blocks)
        modules = [before, *({f"{self._path}.{number}": block} for number, block in enumerate(blocks)), after]
        names = ["embeddings", *(f"{self._path}.{number}" for number in range(len(blocks))), "head"]
        first_use, counts = {}, []
        for name, inside in zip(names, modules):
            unit = Unit(name, [], [])
            self.units.append(unit)
            counts.append(0)
            for path, module in inside.items():
                counts[-1] += _note(unit, path, module, first_use)
        first = {name for unit in self.units for name in unit.owns}
        self._others = {name: [] for name in first}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            if name != first_use[id(parameter)]:
                self._others[first_use[id(parameter)]].append(name)
        kinds = [[type(module).__name__ for module in inside.values()] for inside in modules]
        chosen = [([number], kind, count) for number, (kind, count) in enumerate(zip(kinds, counts))]
        self.chunks = chunks_of(stages, chunks)
        self.first_units = first_units(chosen, stages, partition, len(chosen), self.chunks)
        self.stage = cut_ranks(stages, "pipeline.stages")
        self._embeds, self._given = False, None
        self._take(model, modules, {id(p): p for p in model.parameters()}, first_use)

    def _take(self, model, modules, parameters, first_use):
        """Keeps this stage's modules, and puts stand-ins at the places of all blocks and embeddings."""
        self.own = nn.ModuleDict()
        kept = set()
        for number, inside in enumerate(modules):
            here = number in self.own_units
            for path, module in inside.items():
                kept.update(id(p) for p in module.parameters() if here)
                if here:
                    self.own[path.replace(".", "/")] = module
                if number == 0:
                    model.set_submodule(path, _EmbeddingStandIn(self, module, here))
                elif number + 1 < len(modules):
                    model.set_submodule(path, _BlockStandIn(self, number - 1, module))
                elif not here:
                    model.set_submodule(path, nn.Module())
        self.tensors = {first_use[key]: (parameters[key], self._others[first_use[key]]) for key in parameters if key in kept}
        self._elsewhere = [parameter for key, parameter in parameters.items() if key not in kept]
        for parameter in self._elsewhere:
            parameter.data = parameter.data.new_empty(0)
        self.__dict__["_model"] = model
        self._last = len(self.units) - 3  # block

    def of_other_stages(self):
        return self._elsewhere

    @property
    def _dtype(self):
        return next(iter(self.tensors.values()))[0].dtype

    def train(self, mode=True):
        self._model.train(mode)
        return super().train(mode)

    def prepared(self, batch, to_device):
        if not isinstance(batch, dict) and not hasattr(batch, "keys") or "input_ids" not in batch or "labels" not in batch:
            has = f" with {', '.join(map(str, batch.keys()))}" if hasattr(batch, "keys") else ""
            raise _native.UsageError(f"engine.train_batch: a micro-batch is a {type(batch).__name__}{has}; expected a dict with input_ids "
                                     "and labels; engine.set_batch_fn() sets a function that makes it so")
        return _MicroBatch(to_device({key: batch[key] for key in batch.keys()}))

    def labels_of(self, batch):
        return batch.values["labels"]

    def run(self, unit, inputs, batch):
        if unit == 0:
            return self._run_embeddings(batch)
        if unit + 1 == len(self.units):
            self._given = inputs
            try:
                return self._model(**batch.values, use_cache=False)
            finally:
                self._given = None
        if not batch.arguments:
            with torch.no_grad():
                self._note_arguments(batch)
        args, kwargs = batch.arguments[unit - 1]
        outputs = self.own[self.units[unit].name.replace(".", "/")](inputs, *args, **kwargs)
        return outputs[0] if isinstance(outputs, tuple) else outputs

    def _run_embeddings(self, batch):
        self._embeds = True
        try:
            return self._note_arguments(batch)
        finally:
            self._embeds = False

    def _note_arguments(self, batch):
        """Notes what forward() gives the blocks of this stage; returns what it gives the first block of all."""
        self._noting = batch.arguments
        own = [unit - 1 for unit in self.own_units if 0 < unit < len(self.units) - 1]
        self._until = own[-1] if own else 0
        values = {key: value for key, value in batch.values.items() if key != "labels"}
        try:
            self._model(**values, use_cache=False)
        except _Reached:
            return self._embedded
        finally:
            self._noting = self._embedded = None
        raise _native.UsageError(f"{type(self._model).__name__}.forward() did not come to block {self._until} of {self._path}")

    def _at_block(self, number, args, kwargs):
        kwargs = dict(kwargs)
        hidden = args[0] if args else kwargs.pop("hidden_states")
        if self._given is not None:
            hidden = self._given if number == self._last else hidden
        else:
            if number == 0:
                self._embedded = hidden
            self._noting[number] = args[1:], kwargs
            if number == self._until:
                raise _Reached
        return (hidden,) if self._returns_tuple else hidden

    def loss_of(self, outputs, batch):
        return outputs.loss

    def logits_of(self, outputs):
        return outputs.logits


def _refuse_unfit(model, stages):
    kinds = {cls.__name__ for cls in type(model).__mro__ if cls.__module__.startswith("transformers.")}
    name = type(model).__name__
    if "PreTrainedModel" not in kinds or not hasattr(model, "config"):
        raise _native.UsageError(
            f"pipeline.stages is {stages}, and the model, a {name}, is neither a zerocore.pipe.PipelineModule nor a decoder of "
            "transformers, and can be cut nowhere: give its layers in their order to a PipelineModule, or leave the key out")
    config = model.config
    if getattr(config, "is_encoder_decoder", False) or getattr(config, "output_router_logits", False):
        raise _native.UsageError(f"pipeline.stages is {stages}, and {name} is " + (
            "an encoder with a decoder" if config.is_encoder_decoder else "adding losses of its routers (output_router_logits)")
            + ", which stages do not support: leave the key out")
    for path, parameter in model.named_parameters():
        if parameter.is_meta or _native.is_at_rest(parameter):
            raise _native.UsageError(f"pipeline.stages is {stages}, and parameter {path} has no values here: construct the model "
                                     "outside of zero.Init and of the meta device")


def _blocks_of(model):
    count = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    lists = [(path, module) for path, module in model.named_modules() if isinstance(module, nn.ModuleList) and len(module) == count
             and any(True for _ in module.parameters())]
    outer = [each for each in lists if not any(each[0].startswith(f"{path}.") for path, _ in lists)]
    if len(outer) != 1:
        raise _native.UsageError(f"pipeline.stages: {type(model).__name__} has {len(outer)} lists of num_hidden_layers ({count}) blocks, "
                                 "and one is needed to cut it: give its layers in their order to a zerocore.pipe.PipelineModule")
    return outer[0][0], list(outer[0][1])


def _probe(model, path, blocks):
    """Returns the modules with parameters that forward() runs before and after the blocks, by their paths, and whether a block
    returns a tuple. Runs two tokens."""
    inside = {id(module) for block in blocks for module in block.modules()}
    owners = {name: module for name, module in model.named_modules() if id(module) not in inside and
              any(True for _ in module.parameters(recurse=False))}
    before, after, seen = {}, {}, []
    names = {id(module): name for name, module in owners.items()}

    def note(module, args):
        (after if seen else before)[names[id(module)]] = module

    hooks = [module.register_forward_pre_hook(note) for module in owners.values()]
    hooks.append(blocks[0].register_forward_hook(lambda module, args, output: seen.append(isinstance(output, tuple))))
    trained = model.training
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            model.eval()
            model(input_ids=torch.zeros(1, 2, dtype=torch.int64), use_cache=False)
    finally:
        model.train(trained)
        for hook in hooks:
            hook.remove()
    odd = [name for name, module in owners.items() if (name in before) == (name in after) or path.startswith(f"{name}.") or not name]
    odd += [name for name, module in before.items() if not (isinstance(module, nn.Embedding) or "Norm" in type(module).__name__)]
    if odd or not seen:
        raise _native.UsageError(f"pipeline.stages: {type(model).__name__} cannot be cut, since {odd[0] if odd else path} is not an "
                                 "embedding or norm before its blocks, nor runs after them: give its layers in their order to a "
                                 "zerocore.pipe.PipelineModule")
    return before, after, seen[0]


def _note(unit, path, module, first_use):
    """Notes the parameters of a module of the unit; returns the number of their elements."""
    count = 0
    for name, parameter in module.named_parameters(path, remove_duplicate=False):
        count += parameter.numel()
        first = first_use.setdefault(id(parameter), name)
        if first == name:
            unit.owns.append(name)
        elif first not in unit.owns and first not in unit.uses:
            unit.uses.append(first)
    return count
