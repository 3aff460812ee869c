"""Which modules become units: what is gathered and freed together."""

import torch
from torch import nn

from . import _native

_COMPUTE = {torch.float32, torch.bfloat16, torch.float16}


def children_of_lists(name, module, parent, lists_around):
    """The default policy: children of the outermost ModuleLists and Sequentials, the blocks of most models."""
    return parent is not None and _is_list(parent) and lists_around == 1


def of_types(*types):
    """As FSDP's ModuleWrapPolicy: modules of these types."""
    return lambda name, module, parent, lists_around: isinstance(module, types)


def _is_list(module):
    return isinstance(module, (nn.ModuleList, nn.Sequential))


class _Collector:
    def __init__(self, policy):
        self.policy = policy
        self.names = [""]
        self.parents = [-1]
        self.modules = {}  # id of a module -> the unit that it lies in
        self.parameters = {}  # id of a parameter -> [unit, first name, parameter]
        self.buffers = []
        self.seen_buffers = set()

    def visit(self, module, prefix, unit, lists):
        self.modules[id(module)] = unit
        for name, parameter in module.named_parameters(recurse=False):
            held = self.parameters.setdefault(id(parameter), [unit, prefix + name, parameter])
            held[0] = self._innermost_around(held[0], unit)
        for name, buffer in module.named_buffers(recurse=False):
            if id(buffer) not in self.seen_buffers:
                self.seen_buffers.add(id(buffer))
                if name not in module._non_persistent_buffers_set:
                    self.buffers.append((unit, prefix + name, buffer, module, name))
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
        while a != b:  # units around another one have smaller indices
            if a > b:
                a = self.parents[a]
            else:
                b = self.parents[b]
        return a


def declare(module, policy, compute_dtype, group_of, others=()):
    """The module's units for the engine, and by the id of each parameter its unit and those around it, innermost
    first. Floating-point parameters and buffers take the compute dtype.

    `group_of(name, parameter)` gives (optimizer group or "", whether weight decay applies). `others` are (name,
    parameter) of what is trained and lies in no module of the model, as a criterion's: they keep their dtype, in the
    root unit."""
    collector = _Collector(policy)
    collector.visit(module, "", 0, 0)
    parameters = [[] for _ in collector.names]
    for unit, name, parameter in collector.parameters.values():
        dtype = compute_dtype if parameter.is_floating_point() else parameter.dtype
        group, decay = group_of(name, parameter)
        parameters[unit].append(_native.Parameter(
            name=name, tensors=[parameter], dtype=dtype,
            converted=dtype != compute_dtype, trainable=parameter.requires_grad, decay=decay, group=group))
    for name, parameter in others:
        group, decay = group_of(name, parameter)
        parameters[0].append(_native.Parameter(
            name=name, tensors=[parameter], dtype=parameter.dtype, converted=parameter.dtype != compute_dtype,
            trainable=True, decay=decay, group=group))
    buffers = [[] for _ in collector.names]
    for unit, name, buffer, owner, own_name in collector.buffers:
        if buffer.is_floating_point() and buffer.dtype in _COMPUTE and buffer.dtype != compute_dtype:
            buffer.data = buffer.data.to(compute_dtype)
        buffers[unit].append((name, buffer))
    around = {key: collector.around(unit) for key, (unit, _, _) in collector.parameters.items()}
    around.update({id(parameter): [0] for _, parameter in others})
    return _without_empty(collector.names, collector.parents, parameters, buffers), around


def _without_empty(names, parents, parameters, buffers):
    """A unit whose parameters all belong to units around it has nothing to gather. The root stays: backward begins
    with it."""
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
