"""Saves Python values as bytes that contain no code: a safetensors file with JSON in its metadata.

    to_bytes({"epoch": 3, "ema": [tensor]}, "client_state")  ->  bytes
    from_bytes(those bytes, notice)                            ->  {"epoch": 3, "ema": [tensor]}

The names of the tensors in the file are numbers; the text "state" of its metadata is the value. JSON has null, booleans,
numbers, texts, lists and objects. Any other value is an object with one key: a dollar sign and the kind
(docs/checkpoints.md lists them). Loading creates only values of these kinds: it imports no module and calls nothing that
the file names."""

import base64
import collections
import ctypes
import datetime
import enum
import io
import json
import math
import pathlib
import random
import sys
from argparse import Namespace

import torch

_FORMAT = "zerocore-state"
_VERSION = "1"
_DEEPEST = 200
_DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
           torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
           torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64", torch.float8_e4m3fn: "F8_E4M3",
           torch.float8_e5m2: "F8_E5M2", torch.float8_e4m3fnuz: "F8_E4M3FNUZ", torch.float8_e5m2fnuz: "F8_E5M2FNUZ"}
_BY_NAME = {name: dtype for dtype, name in _DTYPES.items()}


class Unsavable(TypeError):
    """A value whose kind the format lacks. The text names the kind, its place and an alternative."""


def to_bytes(value, name):
    """Returns the bytes of `value`. Raises Unsavable; `name` is the value's name in that text, empty for a dict
    whose keys are names."""
    writer = _Writer()
    text = json.dumps(writer.encode(value, name, 0), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return _join(text, writer.tensors)


def from_bytes(data, notice=print):
    """Returns the value. Calls `notice(text)` for each part that is restored as another kind."""
    text, tensors = _split(data)
    return _Reader(tensors, notice).decode(json.loads(text))


def _tensor_of(data, about):
    dtype = _BY_NAME[about["dtype"]]
    flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return flat.reshape(about["shape"])


def notices_on(value, name):
    """Notices on values that to_bytes() stores as another type."""
    writer = _Writer()
    writer.encode(value, name, 0)
    return writer.notices


def bytes_of(tensor):
    """Returns the bytes of the tensor's values, in the order of its elements. numpy need not be there."""
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size()) if flat.numel() else b""


def _join(text, tensors):
    header = {"__metadata__": {"format": _FORMAT, "version": _VERSION, "state": text}}
    # The widest come first, so that each tensor is aligned for any reader.
    order = sorted(range(len(tensors)), key=lambda index: -tensors[index].element_size())
    parts, begin = [], 0
    for index in order:
        tensor = tensors[index]
        part = bytes_of(tensor)
        header[str(index)] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape),
                              "data_offsets": [begin, begin + len(part)]}
        parts.append(part)
        begin += len(part)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    return b"".join([len(head).to_bytes(8, "little"), head, *parts])


def _split(data):
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    about = header.pop("__metadata__", {})
    if about.get("format") != _FORMAT:
        raise ValueError(f"this is no state that zerocore saved: its format is {about.get('format')!r}")
    if about.get("version") != _VERSION:
        raise ValueError(f"the saved state has version {about.get('version')}, and this zerocore reads {_VERSION}")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[int(name)] = _tensor_of(bytearray(data[8 + size + begin:8 + size + end]), entry)
    return about["state"], tensors


class _Writer:
    def __init__(self):
        self.tensors = []
        self.notices = []
        self._known = {}  # id of a tensor -> (its number, the tensor, which keeps the id in use)

    def encode(self, value, place, depth):
        if depth > _DEEPEST:
            raise Unsavable(f"{place[:80]}... is nested more than {_DEEPEST} levels deep, or contains itself")
        simple = self._simple(value)
        if simple is not NotImplemented:
            return simple
        for kinds, encode in ((torch.Tensor, self._tensor), (dict, self._dict), ((list, tuple), self._sequence),
                              ((set, frozenset), self._set), (collections.deque, self._deque), (Namespace, self._namespace)):
            if isinstance(value, kinds):
                return encode(value, place, depth)
        return self._other(value, place, depth)

    def _simple(self, value):
        if isinstance(value, enum.Enum):
            return {"$enum": [type(value).__module__, type(value).__qualname__, value.name]}
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if kind is complex:
            return {"$complex": [repr(value.real), repr(value.imag)]}
        if kind in (bytes, bytearray):
            if len(value) > 1024:
                return {f"${kind.__name__}_tensor": self._store(torch.frombuffer(bytearray(value), dtype=torch.uint8))}
            return {f"${kind.__name__}": base64.b64encode(value).decode()}
        if isinstance(value, pathlib.PurePath):
            return {"$path": str(value)}
        if kind is torch.Size:
            return {"$size": list(value)}
        if kind in (torch.dtype, torch.device):
            return {f"${kind.__name__}": str(value).removeprefix("torch.")}
        if kind in (datetime.datetime, datetime.date):
            return {f"${kind.__name__}": value.isoformat()}
        if kind is datetime.timedelta:
            return {"$timedelta": [value.days, value.seconds, value.microseconds]}
        return NotImplemented

    def _tensor(self, value, place, depth):
        if value.layout == torch.sparse_coo:
            value = value.coalesce()
            return {"$sparse": [self.encode(value.indices(), place, depth), self.encode(value.values(), place, depth),
                                list(value.shape)]}
        if value.layout != torch.strided or value.is_quantized or value.is_meta or value.is_nested:
            raise Unsavable(f"{place} is a tensor of layout {value.layout} on {value.device}; only dense tensors with "
                            "values can be saved")
        if value.dtype in (torch.complex64, torch.complex128):
            return {"$complex_tensor": self.encode(torch.view_as_real(value.detach()), place, depth)}
        if value.dtype not in _DTYPES:  # stored as its bytes
            flat = value.detach().cpu().contiguous().view(-1).view(torch.uint8)
            return {"$raw_tensor": [self._store(flat), str(value.dtype).removeprefix("torch."), list(value.shape)]}
        number = self._store(value)
        if isinstance(value, torch.nn.Parameter):
            return {"$parameter": [number, value.requires_grad]}
        return {"$tensor": number}

    def _store(self, tensor):
        if id(tensor) not in self._known:
            self._known[id(tensor)] = (len(self.tensors), tensor)
            self.tensors.append(tensor.detach().cpu().contiguous())
        return self._known[id(tensor)][0]

    def _dict(self, value, place, depth):
        ordered, counts = type(value) is collections.OrderedDict, type(value) is collections.Counter
        if type(value) is not dict and not ordered and not counts:
            self._noted(value, place, "dict")
        plain = all(type(key) is str for key in value)
        if plain and not ordered and not counts and not any(key.startswith("$") for key in value):
            return {key: self.encode(each, f"{place}[{key!r}]" if place else key, depth + 1)
                    for key, each in value.items()}
        pairs = [[self.encode(key, f"a key of {place}", depth + 1), self.encode(each, f"{place}[{key!r}]", depth + 1)]
                 for key, each in value.items()]
        return {"$ordered_dict" if ordered else "$counter" if counts else "$dict": pairs}

    def _sequence(self, value, place, depth):
        items = [self.encode(each, f"{place}[{index}]", depth + 1) for index, each in enumerate(value)]
        base = list if isinstance(value, list) else tuple
        if type(value) is not base:
            self._noted(value, place, base.__name__)
        return items if base is list else {"$tuple": items}

    def _set(self, value, place, depth):
        items = sorted((self.encode(each, f"an element of {place}", depth + 1) for each in value), key=json.dumps)
        return {"$frozenset" if isinstance(value, frozenset) else "$set": items}

    def _deque(self, value, place, depth):
        return {"$deque": [self.encode(list(value), place, depth), value.maxlen]}

    def _namespace(self, value, place, depth):
        return {"$namespace": self.encode(vars(value), place, depth + 1)}

    def _other(self, value, place, depth):
        if type(value) is io.BytesIO:
            return {"$bytes_io": self.encode(value.getvalue(), place, depth + 1)}
        if isinstance(value, torch.Generator):
            return {"$torch_generator": self.encode(value.get_state(), place, depth + 1)}
        if type(value) is random.Random:
            return {"$random": self.encode(value.getstate(), place, depth + 1)}
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            if isinstance(value, (numpy.ndarray, numpy.generic)):
                return self._array(numpy, value, place)
            if isinstance(value, numpy.random.Generator):
                return {"$numpy_generator": self.encode(value.bit_generator.state, place, depth + 1)}
            if isinstance(value, numpy.random.RandomState):
                return {"$numpy_random_state": self.encode(value.get_state(legacy=False), place, depth + 1)}
        raise Unsavable(
            f"{place} is a {type(value).__module__}.{type(value).__qualname__}, which cannot be saved without code: "
            "give its contents (its state_dict(), a dict, dataclasses.asdict(...)), or store it in a file of your own")

    def _array(self, numpy, value, place):
        if value.dtype.hasobject or value.dtype.kind == "V":
            raise Unsavable(f"{place} is a numpy array of {value.dtype}; give its fields, or a list of its objects")
        array = numpy.ascontiguousarray(value)
        # A dtype without a name in safetensors is stored as its bytes.
        named = value.dtype.kind in "biuf" and value.dtype.isnative and value.dtype.itemsize <= 8
        flat = torch.from_numpy(array.reshape(-1).copy()) if named else torch.frombuffer(
            bytearray(array.tobytes()), dtype=torch.uint8) if array.nbytes else torch.empty(0, dtype=torch.uint8)
        kind = "$numpy_scalar" if isinstance(value, numpy.generic) else "$numpy"
        return {kind: {"tensor": self._store(flat), "dtype": value.dtype.str, "shape": list(value.shape)}}

    def _noted(self, value, place, base):
        self.notices.append(f"{place} is a {type(value).__qualname__}, and is stored as a {base}")


class _Reader:
    def __init__(self, tensors, notice):
        self._tensors = tensors
        self._notice = notice
        self._kinds = {
            "float": float, "complex": lambda parts: complex(float(parts[0]), float(parts[1])),
            "bytes": base64.b64decode, "bytearray": lambda text: bytearray(base64.b64decode(text)),
            "bytes_tensor": lambda number: bytes_of(tensors[number]),
            "bytearray_tensor": lambda number: bytearray(bytes_of(tensors[number])),
            "bytes_io": lambda inner: io.BytesIO(self.decode(inner)), "size": torch.Size,
            "raw_tensor": lambda parts: tensors[parts[0]].view(self._dtype(parts[1])).view(parts[2]),
            "sparse": lambda parts: torch.sparse_coo_tensor(
                self.decode(parts[0]), self.decode(parts[1]), parts[2], check_invariants=True),
            "path": pathlib.Path, "device": torch.device, "dtype": self._dtype,
            "datetime": datetime.datetime.fromisoformat, "date": datetime.date.fromisoformat,
            "timedelta": lambda parts: datetime.timedelta(*parts),
            "enum": self._enum, "tensor": tensors.__getitem__,
            "complex_tensor": lambda inner: torch.view_as_complex(self.decode(inner)),
            "parameter": lambda parts: torch.nn.Parameter(tensors[parts[0]], requires_grad=parts[1]),
            "dict": lambda pairs: {self.decode(key): self.decode(value) for key, value in pairs},
            "ordered_dict": lambda pairs: collections.OrderedDict((self.decode(k), self.decode(v)) for k, v in pairs),
            "counter": lambda pairs: collections.Counter({self.decode(k): self.decode(v) for k, v in pairs}),
            "tuple": lambda items: tuple(map(self.decode, items)),
            "deque": lambda parts: collections.deque(self.decode(parts[0]), parts[1]),
            "set": lambda items: set(map(self.decode, items)),
            "frozenset": lambda items: frozenset(map(self.decode, items)),
            "namespace": lambda inner: Namespace(**self.decode(inner)),
            "torch_generator": self._torch_generator, "random": self._random,
            "numpy": self._array, "numpy_scalar": lambda about: self._array(about)[()],
            "numpy_generator": self._numpy_generator, "numpy_random_state": self._numpy_random_state,
        }

    def decode(self, value):
        if isinstance(value, list):
            return [self.decode(each) for each in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            (key, inner), = value.items()
            if key.startswith("$"):
                if key[1:] not in self._kinds:
                    raise ValueError(f"the saved state has the kind {key}, which this version of zerocore does not support")
                return self._kinds[key[1:]](inner)
        return {key: self.decode(each) for key, each in value.items()}

    def _dtype(self, name):
        dtype = getattr(torch, name)
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"the saved state has the torch.dtype {name!r}, which torch does not have")
        return dtype

    def _enum(self, parts):
        """Returns a member of a class that the program has imported already; nothing is imported."""
        module, path, name = parts
        found = sys.modules.get(module)
        for step in path.split("."):
            found = vars(found).get(step) if found is not None else None
        if isinstance(found, type) and issubclass(found, enum.Enum) and name in found.__members__:
            return found[name]
        self._notice(f"the saved state holds {module}.{path}.{name}, an enum that this program has not imported; it "
                     "comes back as this text")
        return f"{module}.{path}.{name}"

    def _array(self, about):
        numpy = _numpy()
        dtype = numpy.dtype(about["dtype"])
        flat = self._tensors[about["tensor"]].numpy()
        array = flat if flat.dtype == dtype else numpy.frombuffer(flat.tobytes(), dtype=dtype).copy()
        return array.reshape(about["shape"])

    def _torch_generator(self, state):
        generator = torch.Generator()
        generator.set_state(self.decode(state))
        return generator

    def _random(self, state):
        generator = random.Random()
        generator.setstate(self.decode(state))
        return generator

    def _numpy_generator(self, inner):
        numpy = _numpy()
        state = self.decode(inner)
        kinds = {name: getattr(numpy.random, name) for name in ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")}
        bits = kinds[state["bit_generator"]]()
        bits.state = state
        return numpy.random.Generator(bits)

    def _numpy_random_state(self, inner):
        generator = _numpy().random.RandomState()
        generator.set_state(self.decode(inner))
        return generator


def _numpy():
    try:
        import numpy
    except ImportError:
        raise ValueError("the saved state holds arrays of numpy, which is not installed here") from None
    return numpy
