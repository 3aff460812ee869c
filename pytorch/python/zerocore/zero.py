"""deepspeed.zero: access to whole parameters between passes."""

import contextlib
import functools
import weakref
from collections.abc import Iterable

import torch

from . import _native, construction
from .construction import ZeroParamStatus
from .integrations.peft import Unmerging
from .parts import is_split, parts_of
from .passes import engine_of
from .streams import whole_values


class GatheredParameters(contextlib.AbstractContextManager):
    """Inside the block, the parameters have their whole values on each rank. With a modifier_rank, all ranks take
    the values that this rank has after the block. Without one, changing a sharded parameter raises UsageError, and a
    change of an unsharded parameter, which all ranks must make alike, is kept. Adapters of peft that are merged and
    unmerged inside leave the values as they were. Collective."""

    def __init__(self, params, modifier_rank=None, fwd_module=None, enabled=True):
        params = _listed(params) if enabled else []
        params = [tensor for parameter in params for _, tensor in parts_of(parameter)]
        self._params = list({id(each): each for each in params}.values())
        self._modifier_rank = modifier_rank
        self._slices = []  # Slices of parameters that zero.Init constructed and that have no engine yet
        self._gathered = []  # (parameter, its whole values, its own tensor, its status)
        self._marks = {}  # id of a parameter -> checksums of its values before the block

    def __enter__(self):
        engines = {engine_of(parameter) for parameter in self._params} - {None}
        self._unmerging = [Unmerging(tuner, _mark_of) for engine in engines for tuner in engine.tuners]
        for parameter in self._params:
            own = construction.slice_of(parameter)
            if own is not None:
                own.hold()
                self._slices.append(own)
                self._mark(parameter)
                continue
            if engine_of(parameter) is None and not parameter.is_meta:
                continue  # whole and in no engine, like a copy of an engine's parameter
            engine = _engine_of(parameter)
            if engine._in_forward and self._modifier_rank is None:
                continue  # the pass gathers what it uses
            with engine._guarded("read", settles=True):
                values = whole_values(engine, parameter)
            own = parameter.data
            # The storage serves views of the parameter; the tensor keeps .data valid after the block.
            engine.native.use_memory(engine.name_of(parameter), values)
            parameter.data = values
            self._gathered.append((parameter, values, own, parameter.ds_status))
            engine._lent.add(id(parameter))
            parameter._zerocore_gathered = True
            parameter.ds_status = ZeroParamStatus.AVAILABLE
            self._mark(parameter)
        return self

    def _mark(self, parameter):
        if self._modifier_rank is None:
            self._marks[id(parameter)] = _mark_of(parameter)

    def _is_changed(self, parameter):
        if id(parameter) not in self._marks:
            return False
        return _mark_of(parameter) not in (self._marks[id(parameter)], getattr(parameter, "_zerocore_unmerged", None))

    def __exit__(self, kind, error, traceback):
        lost = []  # names of parameters
        for each in self._unmerging:
            each.end()
        for parameter, values, own, status in self._gathered:
            engine = _engine_of(parameter)
            changed, is_changed = parameter.data, kind is None and self._is_changed(parameter)
            for mark in ("_zerocore_gathered", "_zerocore_unmerged"):
                vars(parameter).pop(mark, None)
            parameter.data = own
            engine.native.use_memory(engine.name_of(parameter), None)
            engine._lent.discard(id(parameter))
            parameter.ds_status = status
            if self._modifier_rank is not None and kind is None:
                values = changed.to(values.dtype).contiguous()
                engine._ranks.broadcast(values, self._modifier_rank)
                engine.write(parameter, values)
            elif is_changed and status is ZeroParamStatus.AVAILABLE:
                with torch.no_grad():
                    parameter.copy_(changed)  # noticed as a write of the program
            elif is_changed:
                lost.append(engine.name_of(parameter))
        for own in self._slices:
            if kind is None and self._is_changed(own.parameter()):
                lost.append(f"(constructed inside of zero.Init, of shape {tuple(own.parameter().shape)})")
            own.let_go(self._modifier_rank if kind is None else None)
        self._gathered, self._slices, self._marks = [], [], {}
        if lost:
            raise _native.UsageError(f"zero.GatheredParameters: {len(lost)} parameters were changed inside of the block "
                                     f"without a modifier_rank, {', '.join(lost[:3])} among them; they are as before. Give "
                                     "modifier_rank=0, whose values all ranks take then, or change a copy")
        return False


def _listed(params):
    """Returns the parameters that a program gives, without None, which a missing bias is."""
    params = [params] if isinstance(params, torch.Tensor) else params
    params = list(params) if isinstance(params, Iterable) else [params]
    for each in params:
        if each is not None and not isinstance(each, torch.Tensor):
            raise _native.UsageError(f"zero.GatheredParameters: params has a {type(each).__name__}; expected a parameter, or "
                                     "parameters in one list, such as module.parameters()")
    return [each for each in params if each is not None]


# Arguments of DeepSpeed's that have no effect.
_OF_DEEPSPEED = {"data_parallel_group", "mem_efficient_linear", "remote_device", "pin_memory", "config_dict_or_path", "config",
                 "dtype", "mpu", "zero_param_parallel_group", "zero_quantized_weights", "zero_quantized_nontrainable_weights",
                 "sequence_data_parallel_group", "param_swapper"}


class Init(contextlib.AbstractContextManager):
    """A model constructed inside the block keeps the values of its constructor, and each rank keeps a slice of them:
    only one parameter at a time is whole. Later changes by the constructor (torch.nn.init, copy_(), `.data`) and
    GatheredParameters, inside the block and afterwards, act on whole values. All ranks take rank 0's values.
    `module` is a module that is constructed already. Collective; all ranks must construct the same model."""

    def __init__(self, module=None, *args, enabled=True, **kwargs):
        if set(kwargs) - _OF_DEEPSPEED:
            raise TypeError(f"zero.Init has no argument {min(set(kwargs) - _OF_DEEPSPEED)!r}")
        self._enabled = enabled
        if enabled and module is not None:
            construction.cut_all(module)

    def __enter__(self):
        if self._enabled:
            construction.begin()
        return self

    def __exit__(self, *error):
        if self._enabled:
            construction.end(failed=error[0] is not None)
        return False


def describe(parameter, index, ranks, rests_sharded):
    """Sets the attributes by which DeepSpeed describes a parameter."""
    part = -(-parameter.numel() // ranks)
    parameter.ds_id = index
    parameter.ds_shape = parameter.shape
    parameter.ds_numel = parameter.numel()
    parameter.ds_status = ZeroParamStatus.NOT_AVAILABLE if rests_sharded else ZeroParamStatus.AVAILABLE
    parameter.ds_persist = not rests_sharded  # whether it is whole between passes
    if rests_sharded:
        parameter.ds_tensor = torch.empty(part, dtype=parameter.dtype, device="meta")  # its shape alone
    parameter.partition_numel = functools.partial(int, part)
    parameter.is_shared = functools.partial(_is_shared, weakref.ref(parameter))


def _is_shared(reference):
    """torch's own is_shared() of a tensor without memory ends the process."""
    parameter = reference()
    return not _native.is_at_rest(parameter) and torch.Tensor.is_shared(parameter)


def leave_meta(model):
    """Replaces parameters on the meta device by parameters without memory, which the engine fills. Returns their
    names."""
    replaced, names = {}, set()
    for path, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is None or not parameter.is_meta or is_split(parameter):
                continue
            if id(parameter) not in replaced:
                empty = _native.without_memory(list(parameter.shape), parameter.dtype)
                replaced[id(parameter)] = (parameter, torch.nn.Parameter(empty, parameter.requires_grad))
                names.add(f"{path}.{name}" if path else name)
            module._parameters[name] = replaced[id(parameter)][1]
    return names


def _mark_of(parameter):
    """Returns checksums of the bits; they differ if values or their order differ."""
    bits = parameter.detach().contiguous().view(-1).view(torch.uint8)
    whole = bits[:bits.numel() // 8 * 8].view(torch.int64)
    table = whole[:whole.numel() // 1024 * 1024].view(-1, 1024)
    rest = torch.cat([whole[table.numel():], bits[whole.numel() * 8:].to(torch.int64)])
    return tuple((part * torch.arange(1, part.numel() + 1, device=part.device)).sum().item()
                 for part in (table.sum(0), table.sum(1), rest))


def _engine_of(parameter):
    engine = engine_of(parameter)
    if engine is None:
        raise _native.UsageError("this parameter is in no engine: call zerocore.initialize() with its model first")
    return engine
