"""Reads the files of torch.save() without running code from them.

A pickle names the classes and functions that it is made of, and Python's own reader imports and calls them. Here
tensors and plain values are read by the few functions of the table KNOWN. Everything else becomes a placeholder, an
Unread, with the name of the object: nothing is imported, and code that finds an Unread leaves it out and names it.
"""

import collections
import datetime
import pathlib
import pickle
import tarfile
import types
import zipfile

import numpy
import torch


class Unread:
    """Replaces an object that is not read, or a class or function that makes such objects. It takes and ignores
    everything that its pickle passes to it."""

    name = "an object"
    dump_patches = False  # read by torch's oldest format

    def __new__(cls, *arguments, **_):
        self = object.__new__(cls)
        # These are called with the class, so its name is the better one for messages.
        if cls.name in ("builtins.getattr", "copyreg._reconstructor"):
            self.name = getattr(arguments[0], "name", cls.name) if arguments else cls.name
        return self

    def __init__(self, *_, **__):
        pass

    def __setstate__(self, state):
        pass

    def __setitem__(self, key, value):
        pass

    def __call__(self, *_, **__):
        return self

    def append(self, value):
        pass

    extend = add = append

    def __repr__(self):
        return self.name


class Record(Unread):
    """An object of DeepSpeed; its attributes are read."""

    def __setstate__(self, state):
        if isinstance(state, dict):
            self.__dict__.update(state)


class Namespace(Record):
    """An argparse.Namespace."""


class Path(Unread):
    def __new__(cls, *parts):
        return cls.kind(*[part for part in parts if isinstance(part, str)])


class PosixPath(Path):
    kind = pathlib.PurePosixPath


class WindowsPath(Path):
    kind = pathlib.PureWindowsPath


class Function:
    """A function that a pickle may call. Pickles can set attributes of objects that they name, but not of this one."""

    __slots__ = ("call",)

    def __init__(self, call):
        self.call = call

    def __call__(self, *arguments):
        return self.call(*arguments)

    def __setstate__(self, state):
        raise pickle.UnpicklingError("the state of a function is set")


def value_or_unread(call, name):
    """Returns a function for values of a client state; values that cannot be made are left out like other objects."""
    def made(*arguments):
        try:
            return call(*arguments)
        except Exception:  # the arguments come from a pickle and can raise anything
            return unread(*name.rsplit(".", 1))()
    return Function(made)


class NumpyType:
    """A numpy.dtype of plain numbers; `numpy` is None for any other."""

    def __init__(self, code="", *_):
        self.numpy = numpy.dtype(code) if isinstance(code, str) and code[:1] in "biuf" and code[1:].isdigit() else None

    def __setstate__(self, state):
        if self.numpy is not None and isinstance(state, tuple) and state[1:2] in (("<",), (">",)):
            self.numpy = self.numpy.newbyteorder(state[1])


class NumpyArray:
    """An array; `numpy` is None unless its elements are plain numbers."""

    name = "numpy.ndarray"
    numpy = None

    def __setstate__(self, state):
        try:
            _, shape, of_type, is_fortran, data = state
            if of_type.numpy is None:
                return
            self.numpy = numpy.frombuffer(data, of_type.numpy).reshape(shape, order="F" if is_fortran else "C")
        except (TypeError, ValueError, AttributeError):
            self.numpy = None


def numpy_scalar(of_type, data):
    if of_type.numpy is None:
        raise TypeError("no plain number")
    return numpy.frombuffer(data, of_type.numpy)[0]


def rebuilt_with_attributes(function, _, arguments, __):
    return function(*arguments)


KNOWN = {
    "collections.OrderedDict": collections.OrderedDict,
    "argparse.Namespace": Namespace,
    **{f"pathlib.{name}": PosixPath for name in ("PosixPath", "PurePosixPath")},
    **{f"pathlib.{name}": WindowsPath for name in ("WindowsPath", "PureWindowsPath")},
    **{name: value_or_unread(kind, name) for name, kind in {
        "datetime.datetime": datetime.datetime, "datetime.date": datetime.date,
        "datetime.timedelta": datetime.timedelta}.items()},
    "torch.Size": torch.Size,
    "torch.device": torch.device,
    "torch._utils._rebuild_tensor": Function(torch._utils._rebuild_tensor),
    "torch._utils._rebuild_tensor_v2": Function(torch._utils._rebuild_tensor_v2),
    "torch._utils._rebuild_parameter": Function(lambda data, *_: data),
    "torch._utils._rebuild_parameter_with_state": Function(lambda data, *_: data),
    "torch._tensor._rebuild_from_type_v2": Function(rebuilt_with_attributes),
    "_codecs.encode": Function(lambda text, encoding="latin1": text.encode("latin1")),
    "numpy.dtype": NumpyType,
    **{f"numpy.{core}.multiarray.scalar": value_or_unread(numpy_scalar, "numpy.generic")
       for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray._reconstruct": Function(lambda *_: NumpyArray()) for core in ("core", "_core")},
    **{f"{builtins}.{kind.__name__}": kind for builtins in ("builtins", "__builtin__") for kind in (set, frozenset)},
}
DTYPES = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
RECORDS = ("fragment_address", "DynamicLossScaler", "LossScaler")


def unread(module, name, kind=Unread):
    module = {"__builtin__": "builtins", "copy_reg": "copyreg"}.get(module, module)
    return type(name.rpartition(".")[2], (kind,), {"name": f"{module}.{name}"})


class Unpickler(pickle.Unpickler):
    """An unpickler for torch.load()."""

    def find_class(self, module, name):
        known = KNOWN.get(f"{module}.{name}")
        if known is not None:
            return known
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        return unread(module, name, Record if module.startswith("deepspeed.") and name in RECORDS else Unread)


MODULE = types.SimpleNamespace(
    Unpickler=Unpickler, load=lambda file, **options: Unpickler(file, **options).load(), __name__="pickles")


class Unreadable(Exception):
    pass


def load(path):
    """Returns the content of a file of torch.save(); its tensors stay in the file until they are used. Throws
    Unreadable."""
    try:
        is_zip = zipfile.is_zipfile(path)
        # torch.load() passes such an archive to another reader.
        if is_zip and any(name.partition("/")[2] == "constants.pkl" for name in zipfile.ZipFile(path).namelist()):
            raise Unreadable("a TorchScript archive")
        if not is_zip and tarfile.is_tarfile(path):
            raise Unreadable("a tar archive, as torch wrote before release 0.4")
        return torch.load(path, map_location="cpu", mmap=is_zip, weights_only=False, pickle_module=MODULE)
    except Exception as error:  # torch and a damaged pickle raise many kinds
        raise Unreadable(f"{path}: cannot be read: {str(error) or type(error).__name__}") from error
