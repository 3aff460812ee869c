"""Parameters before their engine is made: inside zero.Init each rank keeps a slice of each.

A parameter keeps its tensor, and with it views and ties; only its storage is allocated and freed. A mode around
torch's functions (torch.overrides.TorchFunctionMode) gathers the parameters among their arguments, and cuts those
used earlier into slices again once they exceed a small budget."""

import ctypes
import enum
import weakref

import torch
from torch.overrides import TorchFunctionMode

from . import _native, ranks, views
from .codes import from_numbers
from .parts import is_split, named_parts
from .passes import PlainState
from .wrapping import replace_once

KEPT_BYTES = 1 << 20  # bytes of small parameters that stay whole, in addition to the one in use
_RETURNED_BYTES = 1 << 24  # bytes freed before they are given back to the system
_AT_REST = ("ZeroCore: this parameter was constructed inside of zero.Init, and each rank holds a slice of it: gather it by "
            "zerocore.zero.GatheredParameters, or give its model to zerocore.initialize() first")
# Attributes of a tensor that lead to its values, and functions that do not.
_VALUES = {"data", "T", "mT", "H", "mH", "real", "imag"}
_NO_VALUES = {"size", "dim", "ndimension", "numel", "nelement", "stride", "element_size", "is_floating_point", "is_complex",
              "is_contiguous", "is_signed", "requires_grad_", "register_hook", "register_post_accumulate_grad_hook",
              "get_device", "storage_offset", "is_pinned", "is_shared", "untyped_storage", "__hash__", "__len__",
              "retain_grad", "has_names", "is_tensor", "is_storage", "is_same_size"}
_stack = []  # of (Slices, mode, the register_parameter() before)


class ZeroParamStatus(enum.Enum):
    """The value of a parameter's ds_status, which DeepSpeed scripts read before they gather it."""

    AVAILABLE = 1
    NOT_AVAILABLE = 2
    INFLIGHT = 3


class Slice:
    """A parameter's slice on this rank. The parameter is whole while its Slice is open."""

    def __init__(self, parameter):
        self.parameter = weakref.ref(parameter)
        self.part = None  # this rank's slice of the flat values; None while the parameter has never been cut
        self.whole = True
        self.holders = 0  # the number of GatheredParameters blocks around it

    def open(self):
        """Makes the parameter whole. Collective if it is closed."""
        if not self.whole:
            parameter = self.parameter()
            _native.give_memory(parameter, _gathered(self.part, parameter.numel()))
            self._is_whole(True)

    def whole_values(self):
        """Returns the whole values, once take_slices() has taken the slice. Collective."""
        parameter = self.parameter()
        return _gathered(self.part, parameter.numel()).view(parameter.shape)

    def drop(self):
        """Frees the slice."""
        self.part = None

    def cut(self, root=0):
        """Sets the slice on each rank to its part of rank `root`'s values, and frees the whole. Collective if it is
        open."""
        parameter, job = self.parameter(), ranks.ranks()
        if not self.whole:
            return
        values = _of_its_own(parameter)
        job.broadcast(values, root)
        here = _part_of(values.reshape(-1), job.rank, job.size)
        if self.part is None or self.part.dtype != here.dtype or self.part.shape != here.shape:
            self.part = torch.empty_like(here)
        self.part.copy_(here)
        parameter.ds_shape, parameter.ds_numel = parameter.shape, parameter.numel()

    def free(self):
        """Frees the whole values; changes since the last cut are dropped."""
        if self.whole and self.parameter().numel() > 0:
            _native.free_memory(self.parameter(), _AT_REST)
            self._is_whole(False)

    def _is_whole(self, whole):
        self.whole = whole
        self.parameter().ds_status = ZeroParamStatus.AVAILABLE if whole else ZeroParamStatus.NOT_AVAILABLE

    def hold(self):
        """Keeps the parameter whole until let_go(). Collective."""
        with without_mode():
            if self.holders == 0:
                self.cut()  # changes made before the block stay, even if the block drops its own
            self.open()
            self.holders += 1

    def let_go(self, root):
        """Ends hold(). All ranks take the values of rank `root`; with None the changes are dropped. Collective."""
        with without_mode():
            if root is not None:
                self.cut(root)
            self.holders -= 1
            if self.holders == 0:
                self.free()


def return_freed_memory():
    """Gives freed memory of the heap back to the system, which the C library keeps between blocks that are in use."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


def _part_of(flat, rank, size):
    length = -(-flat.numel() // size)
    return flat[rank * length:(rank + 1) * length]


def _gathered(part, count):
    """Returns the slices of all ranks, `count` elements, concatenated. Collective."""
    job = ranks.ranks()
    flat = torch.empty(count, dtype=part.dtype)
    for rank in range(job.size):
        target = _part_of(flat, rank, job.size)
        if rank == job.rank:
            target.copy_(part)
        if target.numel():
            job.broadcast(target, rank)
    return flat


def _of_its_own(parameter):
    """Moves the values to a storage that only this parameter uses."""
    data = parameter.detach()
    if not data.is_contiguous() or data.untyped_storage().nbytes() != data.numel() * data.element_size():
        data = data.contiguous().clone()
        parameter.data = data
    return data


class Slices:
    """The parameters of one zero.Init block, with its dtype or None. Open ones are closed in the order of their last use."""

    def __init__(self, dtype=None):
        self._dtype = dtype
        self._open = {}  # id -> Slice, the last used at the end
        self._freed = 0  # bytes since memory was given back

    def take(self, parameter):
        """Cuts a new parameter into slices, and opens it for its constructor. One of integers stays whole, as in an engine.
        Collective."""
        if slice_of(parameter) is None and parameter.layout == torch.strided and parameter.is_floating_point() and not (
                parameter.is_meta or is_split(parameter)):
            if self._dtype is not None:
                parameter.data = parameter.data.to(self._dtype)
            parameter._zerocore_slice = Slice(parameter)
            parameter.__getstate__ = PlainState(parameter)
            parameter.ds_status = ZeroParamStatus.AVAILABLE
            parameter.ds_id, parameter.ds_shape, parameter.ds_numel = id(parameter), parameter.shape, parameter.numel()
            self.use([parameter])

    def use(self, parameters):
        """Makes these parameters whole, and marks them as used last. Collective."""
        for parameter in parameters:
            slice_of(parameter).open()
            self._open.pop(id(parameter), None)
            self._open[id(parameter)] = slice_of(parameter)

    def keep_to_budget(self, in_use):
        """Closes the parameters that were used longest ago until the open ones fit. Collective."""
        kept = 0
        for key, each in reversed(list(self._open.items())):
            parameter = each.parameter()
            if parameter is None or each.holders:
                del self._open[key]
                continue
            kept += parameter.numel() * parameter.element_size()
            if key not in in_use and kept > KEPT_BYTES:
                del self._open[key]
                self._close(each)

    def _close(self, each):
        each.cut()
        each.free()
        self._freed += each.parameter().numel() * each.parameter().element_size()
        if self._freed >= _RETURNED_BYTES:
            self._freed = 0
            return_freed_memory()

    def close_all(self):
        """Closes every open parameter. Collective."""
        for each in self._open.values():
            if each.parameter() is not None and not each.holders:
                self._close(each)
        self._open = {}
        return_freed_memory()


class _Touch(TorchFunctionMode):
    """Passes whole parameters to functions that are called inside zero.Init."""

    def __init__(self, slices):
        super().__init__()
        self._slices = slices

    def __torch_function__(self, function, types, args=(), kwargs=None):
        touched = []
        if _sees_values(function):
            touched = [each for each in _tensors((args, kwargs or {})) if slice_of(each) is not None]
            self._slices.use(touched)
        result = function(*args, **(kwargs or {}))
        if touched:
            self._slices.keep_to_budget({id(each) for each in touched})
        return result


def _sees_values(function):
    name = getattr(function, "__name__", "")
    if name in ("__get__", "__set__"):
        return getattr(getattr(function, "__self__", None), "__name__", "") in _VALUES
    return name not in _NO_VALUES


def _tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def slice_of(parameter):
    """Returns the parameter's Slice if it was constructed inside zero.Init and has no engine yet; else None."""
    return parameter.__dict__.get("_zerocore_slice") if isinstance(parameter, torch.nn.Parameter) else None


def begin(dtype=None):
    """Begins a zero.Init block; a nested block changes nothing."""
    register = torch.nn.Module.register_parameter
    if _stack:
        _stack.append(None)
        return
    ranks.ranks()
    _guard()
    slices = Slices(dtype)
    mode = _Touch(slices)

    def register_and_take(module, name, parameter):
        register(module, name, parameter)
        if parameter is not None:
            with without_mode():
                slices.take(parameter)
                slices.keep_to_budget({id(parameter)})

    torch.nn.Module.register_parameter = register_and_take
    mode.__enter__()
    _stack.append((slices, mode, register))


def end(failed):
    """Ends a zero.Init block. After a failure, nothing is exchanged."""
    block = _stack.pop()
    if block is None:
        return
    slices, mode, register = block
    mode.__exit__(None, None, None)
    torch.nn.Module.register_parameter = register
    if not failed:  # after a failure the ranks may be at different places, so no collective is safe
        slices.close_all()


def _guard():
    views.guard()
    replace_once(torch.nn.Parameter, "__deepcopy__", _whole_copy)


def _whole_copy(copy_of):
    """A deepcopy of a sliced parameter is a whole one, outside of zero.Init. Collective."""
    def copy(parameter, memo):
        own = slice_of(parameter)
        if own is None or id(parameter) in memo:
            return copy_of(parameter, memo)
        own.hold()
        try:
            with without_mode():
                return copy_of(parameter, memo)
        finally:
            own.let_go(None)
    return copy


def without_mode():
    """The package's own access to parameters: they are not gathered."""
    return torch._C.DisableTorchFunction()


def cut_all(module, dtype=None):
    """Cuts a module that exists already, as if zero.Init had been around its constructor. Collective."""
    _guard()
    slices = Slices(dtype)
    with without_mode():
        for parameter in module.parameters():
            slices.take(parameter)
        slices.close_all()


class SliceInEngine:
    """A parameter's values in an engine that had the model before."""

    def __init__(self, engine, parameter):
        self._engine, self._parameter = engine, parameter
        self._name, self._shape = engine.name_of(parameter), list(parameter.shape)

    def whole_values(self):
        """Returns the whole values. Collective."""
        return from_numbers(self._parameter, self._engine.native.read(self._name, "value", self._shape))

    def drop(self):
        """Forgets the engine."""
        self._engine = self._parameter = None


def take_slices(model, engine_of):
    """Returns {name: (parameter, its Slice or SliceInEngine)} of the parameters that zero.Init constructed, and of those
    that are sharded in an engine, engine_of(parameter), and frees their memory."""
    taken = {}
    for name, parameter in named_parts(model).items():
        own = slice_of(parameter)
        if own is None and engine_of(parameter) is not None and _native.is_at_rest(parameter):
            _native.free_memory(parameter, None)
            taken[name] = (parameter, SliceInEngine(engine_of(parameter), parameter))
        if own is None:
            continue
        if own.holders:
            raise _native.UsageError(f"zerocore.initialize: parameter {name} is gathered by zero.GatheredParameters; "
                                     "leave the block first")
        own.cut()
        _native.free_memory(parameter, None)
        del parameter._zerocore_slice
        taken[name] = (parameter, own)
    return taken
