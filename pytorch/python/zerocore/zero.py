"""deepspeed.zero: access to whole parameters between passes."""

import contextlib
import functools
import weakref
from collections.abc import Iterable

import torch

from . import _native, construction, ranks
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


_BY_CONFIG = ("zero_quantized_weights", "zero_quantized_nontrainable_weights")
_GROUPS = ("data_parallel_group", "sequence_data_parallel_group")
# DeepSpeed's arguments after `module`. Those that are not checked say how memory is used, and act on no value.
_ORDER = ("data_parallel_group", "mem_efficient_linear", "remote_device", "pin_memory", "config_dict_or_path", "config", "enabled",
          "dtype", "mpu", "zero_param_parallel_group", "zero_quantized_weights", "zero_quantized_nontrainable_weights",
          "sequence_data_parallel_group", "param_swapper", "tensor_overrides")


class Init(contextlib.AbstractContextManager):
    """A model constructed inside the block keeps the values of its constructor, and each rank keeps a slice of them:
    only one parameter at a time is whole. Later changes by the constructor (torch.nn.init, copy_(), `.data`) and
    GatheredParameters, inside the block and afterwards, act on whole values. All ranks take rank 0's values.
    `module` is a module that is constructed already. `dtype` (float16, bfloat16 or float32) becomes that of parameters with
    fractions, before the constructor fills them; without it they keep their own. The other arguments are
    DeepSpeed's, and do not act. Collective; all ranks must construct the same model."""

    def __init__(self, module=None, *args, **kwargs):
        given = dict(zip(_ORDER, args)) | kwargs
        if set(given) - set(_ORDER):
            raise TypeError(f"zero.Init has no argument {min(set(given) - set(_ORDER))!r}")
        self._enabled, self._dtype = given.get("enabled", True), given.get("dtype")
        if self._enabled:
            _check_arguments(given)
            if module is not None:
                construction.cut_all(module, self._dtype)

    def __enter__(self):
        if self._enabled:
            construction.begin(self._dtype)
        return self

    def __exit__(self, *error):
        if self._enabled:
            construction.end(failed=error[0] is not None)
        return False


def _check_arguments(given):
    """Raises UsageError for arguments of zero.Init that would have no effect, and prints a notice of those that the config
    decides."""
    if given.get("dtype") not in (None, torch.float16, torch.bfloat16, torch.float32):
        raise _native.UsageError(f"zero.Init: dtype is {given['dtype']!r}; expected torch.float16, torch.bfloat16 or torch.float32")
    for name in ("mpu", "zero_param_parallel_group"):
        if given.get(name) is not None:
            raise _native.UsageError(f"zero.Init: {name} is given, and the engine makes its groups of ranks itself: leave it out; "
                                     '"zero_hpz_partition_size" and "zero_core.shard_group_size" of the config name their sizes')
    for name in _GROUPS:
        group, size = given.get(name), ranks.ranks().data_size
        if group is not None and torch.distributed.get_world_size(group) != size:
            raise _native.UsageError(f"zero.Init: {name} has {torch.distributed.get_world_size(group)} ranks; a model is cut over all "
                                     f'{size}; "zero_core.shard_group_size" of the config makes the engine\'s groups smaller')
    device = getattr(given.get("remote_device"), "value", given.get("remote_device"))
    if device not in (None, "none", "cpu", "nvme"):
        raise _native.UsageError(f'zero.Init: remote_device is {device!r}; expected "none", "cpu" or "nvme"')
    notices = [f"{name} has no effect: zero_optimization.{name} of the config decides" for name in _BY_CONFIG if given.get(name)]
    if device == "nvme":
        notices.append("slices stay in host memory until initialize(), which puts them where offload_param of the config says: "
                       'remote_device "nvme" has no effect')
    for text in notices:
        _tell_once(text)


@functools.cache
def _tell_once(text):
    if ranks.ranks().rank == 0:
        print(f"zero: zero.Init: {text}", flush=True)


def describe(parameter, index, count, rests_sharded):
    """Sets the attributes by which DeepSpeed describes a parameter."""
    part = -(-parameter.numel() // count)
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
