"""Chooses which modules become units. A unit is gathered and freed together."""

import collections

import torch
from torch import nn

from . import _native
from .buffers import is_in_engine, memory_of
from .codes import is_code
from .parts import is_split, named_parts, parts_of

_COMPUTE = {torch.float32, torch.bfloat16, torch.float16}


def children_of_lists(name, module, parent, lists_around):
    """The default policy: children of the outermost ModuleLists and Sequentials, the blocks of most models."""
    return parent is not None and _is_list(parent) and lists_around == 1


def of_types(*types):
    """Policy like FSDP's ModuleWrapPolicy: modules of these types become units."""
    return lambda name, module, parent, lists_around: isinstance(module, types)


def _is_list(module):
    return isinstance(module, (nn.ModuleList, nn.Sequential))


class _Collector:
    def __init__(self, policy):
        self.policy = policy
        self.names = [""]
        self.parents = [-1]
        self.modules = {}  # id of a module -> the unit that contains it
        self.parameters = {}  # id of a parameter or a part of one -> [unit, names, tensor]
        self.unchanged = set()  # ids of parts, which keep their dtype
        self.buffers = {}  # by memory -> [unit, names, tensors]

    def visit(self, module, prefix, unit, lists):
        self.modules[id(module)] = unit
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            for text, tensor in parts_of(parameter):
                held = self.parameters.setdefault(id(tensor), [unit, [], tensor])
                held[0] = self._innermost_around(held[0], unit)
                held[1].append(prefix + name + text)
                if text:
                    self.unchanged.add(id(tensor))
        for name, buffer in module.named_buffers(recurse=False, remove_duplicate=False):
            if name not in module._non_persistent_buffers_set:
                key = memory_of(buffer) if buffer.numel() > 0 else id(buffer)
                held = self.buffers.setdefault(key, [unit, [], []])
                held[1].append(prefix + name)
                if not any(buffer is each for each in held[2]):
                    held[2].append(buffer)
        for name, child in module.named_children():
            around = lists + _is_list(module)
            own = unit
            if id(child) in self.modules:
                own = self.modules[id(child)]
            elif any(True for _ in child.parameters()) and self.policy(prefix + name, child, module, around):
                own = len(self.names)
                self.names.append(prefix + name)
                self.parents.append(unit)
            self.visit(child, prefix + name + ".", own, around)

    def around(self, unit):
        return [unit] + (self.around(self.parents[unit]) if unit > 0 else [])

    def _innermost_around(self, a, b):
        while a != b:  # a unit has a larger index than the units around it
            if a > b:
                a = self.parents[a]
            else:
                b = self.parents[b]
        return a


def names_of_units(module, policy=children_of_lists):
    """(name of the unit, name of the parameter, parameter) of all parameters, in the order of the module."""
    collector = _Collector(policy)
    collector.visit(module, "", 0, 0)
    return [(collector.names[unit], names[0], parameter) for unit, names, parameter in collector.parameters.values()
            if parameter.numel() > 0]


def declare(module, policy, compute_dtype, group_of, others=(), buffer_dtype=None, matrices=None):
    """Returns the module's units for the engine and, by the id of each parameter, its unit and those around it,
    innermost first.

    Floating-point parameters are converted to the compute dtype, but not their scales; buffers keep their own, or are converted to
    `buffer_dtype`. `group_of(parameter)` returns the parameter's optimizer group, or "". `matrices`: whether Muon's rule
    for whole matrices updates all trained parameters; if None, their shapes and names decide.
    `others` are (name, parameter) of trained parameters outside the model, such as a criterion's: they keep their
    dtype, in the root unit."""
    _refuse_unfit(module)
    for buffer in module.buffers():
        if buffer_dtype is not None and buffer.is_floating_point() and buffer.dtype in _COMPUTE:
            buffer.data = buffer.data.to(buffer_dtype)
    collector = _Collector(policy)
    collector.visit(module, "", 0, 0)

    def declared(names, parameter, dtype):
        if parameter.requires_grad and parameter._post_accumulate_grad_hooks is None:
            parameter._post_accumulate_grad_hooks = collections.OrderedDict()  # torch adds later hooks to this dict
        return _native.Parameter(
            name=names[0], tensors=[parameter], dtype=dtype, converted=dtype != compute_dtype,
            trainable=parameter.requires_grad, group=group_of(parameter),
            whole=matrices if parameter.requires_grad else None, also_named=names[1:])

    parameters = [[] for _ in collector.names]
    buffers = [[] for _ in collector.names]
    for unit, names, parameter in collector.parameters.values():
        if _holds_bytes(names[0], parameter):
            parameter._zerocore_bytes = True
            buffers[unit].append(_native.Buffer(name=names[0], tensors=[parameter], also_named=names[1:]))
            continue
        vars(parameter).pop("_zerocore_bytes", None)  # of an earlier engine
        converts = parameter.is_floating_point() and not is_code(parameter) and id(parameter) not in collector.unchanged
        dtype = compute_dtype if converts else parameter.dtype
        parameters[unit].append(declared(names, parameter, dtype))
    parameters[0].extend(declared([name], parameter, parameter.dtype) for name, parameter in others)
    for unit, names, tensors in collector.buffers.values():
        buffers[unit].append(_native.Buffer(name=names[0], tensors=tensors, also_named=names[1:]))
    around = {key: collector.around(unit) for key, (unit, _, _) in collector.parameters.items()}
    around.update({id(parameter): [0] for _, parameter in others})
    return _without_empty(collector.names, collector.parents, parameters, buffers), around


def tell_of_bytes(module, rank):
    """Rank 0 prints how many parameters stay whole because they hold bytes."""
    held = {name: tensor.nbytes for name, tensor in named_parts(module).items() if not is_in_engine(tensor)}
    if held and rank == 0:
        names = ", ".join(list(held)[:4]) + (", ..." if len(held) > 4 else "")
        print(f"zero: {len(held)} frozen parameters hold bytes rather than numbers ({names}): each rank keeps them whole, "
              f"{sum(held.values())} bytes", flush=True)


def note_codes(module, settings):
    """Adds a notice if frozen numbers look like codes of a quantizer that says nothing of them."""
    names = [name for name, parameter in module.named_parameters()
             if parameter.dtype in _COMPUTE and not parameter.requires_grad and not is_split(parameter)
             and not _holds_bytes(name, parameter) and _has_memory(parameter) and bool(parameter.detach().isnan().any())]
    if names:
        settings.note(f"{len(names)} frozen parameters have NaNs, {names[0]} among them, and are taken for numbers: if a quantizer "
                      "keeps its codes there, set parameter.zerocore_bytes = True before zerocore.initialize()")


def _holds_bytes(name, parameter):
    """Returns whether the parameter holds bytes that stay whole: by its dtype, integers of several bytes; by what says that
    it has codes in 16 or 32 bits, `quant_state` of bitsandbytes or the script's own `zerocore_bytes`."""
    if parameter.requires_grad or parameter.is_meta or is_code(parameter):
        return False
    if not parameter.is_floating_point() or parameter.dtype.itemsize == 1:
        if not _has_memory(parameter):
            raise _native.UsageError(f"parameter {name} is {parameter.dtype} and has no values: it was constructed on the meta "
                                     "device, and load_weights() could not load it later; give it values before")
        return True
    return getattr(parameter, "quant_state", None) is not None or bool(getattr(parameter, "zerocore_bytes", False))


def _has_memory(parameter):
    """Returns whether the parameter has values: not if the model was constructed on the meta device, or is sharded
    in another engine."""
    return not parameter.is_meta and not _native.is_at_rest(parameter)


def _refuse_unfit(module):
    """Raises UsageError, with its name, for a parameter that no stage could store."""
    for name, submodule in module.named_modules():
        if isinstance(submodule, (nn.Embedding, nn.EmbeddingBag)) and submodule.max_norm is not None:
            raise _native.UsageError(
                f"{name} is an {type(submodule).__name__} with max_norm, which writes to its weight in forward, on each "
                "rank other rows: leave max_norm out, and scale what it returns, or its weight between steps")
    ends = {}
    for name, parameter in named_parts(module).items():
        if parameter.is_meta or parameter.numel() == 0 or parameter.layout != torch.strided:
            continue
        if any(stride == 0 and size > 1 for size, stride in zip(parameter.shape, parameter.stride())):
            raise _native.UsageError(f"parameter {name} is expanded: several of its elements are one in memory, which no "
                                     "optimizer can train; give it memory of its own with .clone()")
        begin = parameter.data_ptr()
        if begin == 0:
            continue
        last = sum((size - 1) * stride for size, stride in zip(parameter.shape, parameter.stride()))
        ends[name] = (begin, begin + (last + 1) * parameter.element_size())
    in_order = sorted(ends.items(), key=lambda item: item[1])
    for (first, (_, end)), (second, (begin, _)) in zip(in_order, in_order[1:]):
        if begin < end:
            raise _native.UsageError(f"parameters {first} and {second} share memory, and are two parameters: let them be one "
                                     "(module.b = module.a), or give each its own memory with .clone()")


def _without_empty(names, parents, parameters, buffers):
    """Removes units whose parameters all belong to units around them: they gather nothing. The root stays, since
    backward begins with it."""
    units, index = [], []
    for i, name in enumerate(names):
        parent = -1 if parents[i] < 0 else index[parents[i]]
        if not parameters[i] and i > 0:
            index.append(parent)
            if parent >= 0:
                units[parent][3].extend(buffers[i])
            continue
        index.append(len(units))
        units.append((name, parent, parameters[i], buffers[i]))
    return [_native.Unit(name=n, parent=p, parameters=ps, buffers=bs) for n, p, ps, bs in units]
