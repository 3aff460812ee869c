"""The one way to run scripts that were written for DeepSpeed: install(). `python -m zerocore.as_deepspeed`,
zerocore.as_deepspeed.install(), the package `deepspeed` itself and ZEROCORE_AS_DEEPSPEED=1 all call it. With that variable
Python calls it when it starts, by zerocore.pth, in launchers too, so it imports neither torch nor zerocore. Python reads
that file in site-packages alone: a package on PYTHONPATH does this when it is imported."""

import importlib
import importlib.abc
import importlib.util
import os
import pathlib
import sys

_FOLDER = pathlib.Path(__file__).parent / "zerocore/as_deepspeed"
_SHIM = _FOLDER / "shim"
VARIABLE = "ZEROCORE_AS_DEEPSPEED"


def install():
    """Lets `import deepspeed` find zerocore's package of that name, and changes the modules in the table of
    as_deepspeed/patches.py, each as soon as it is complete. Processes that this one starts do the same. Raises ImportError
    if DeepSpeed itself has been imported."""
    _refuse_deepspeed(sys.modules.get("deepspeed"))
    os.environ[VARIABLE] = "1"
    if _finder in sys.meta_path:
        return
    sys.path.insert(0, str(_SHIM))  # for the version in its metadata
    sys.meta_path.insert(0, _finder)
    table = _load_table()
    table.export_ranks_of_mpirun()
    for module, change, _ in table.ROWS:
        _finder.changes.setdefault(module, []).append(change)
    for name in _finder.changes:
        module = sys.modules.get(name)
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            _when_complete(module.__spec__)
        elif module is not None:
            _change(name)


_changed = []  # (module or class, name, the value in its own namespace, or this list if there was none)


def put(owner, name, value):
    """Sets an attribute of another library's module or class, until uninstall()."""
    _changed.append((owner, name, vars(owner).get(name, _changed)))
    setattr(owner, name, value)


def uninstall():
    """Undoes install(): modules and classes of other libraries get their own attributes again, and `import deepspeed` finds
    DeepSpeed. Modules that transformers and accelerate have made for DeepSpeed when it was found stay."""
    for owner, name, own in reversed(_changed):
        if own is _changed:
            delattr(owner, name)
        else:
            setattr(owner, name, own)
    _changed.clear()
    if _finder not in sys.meta_path:
        return
    sys.meta_path[:] = [each for each in sys.meta_path  # the package deepspeed has one too
                        if each is not _finder and not type(each).__module__.startswith("deepspeed.")]
    _finder.changes.clear()
    sys.path.remove(str(_SHIM))
    os.environ.pop(VARIABLE, None)
    for name in [name for name in sys.modules if name.split(".")[0] == "deepspeed"]:
        del sys.modules[name]


def _refuse_deepspeed(module):
    if module is None:
        return
    place = str(getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "an unknown file"))
    if "zerocore/as_deepspeed/shim" not in place:
        raise ImportError(
            f"zerocore cannot take the place of deepspeed: it was imported before, from {place}; "
            "start the script with `python -m zerocore.as_deepspeed script.py`, or call zerocore.as_deepspeed.install() in "
            f"its first lines; {VARIABLE}=1 acts from Python's start if zerocore is installed in site-packages")


def _load_table():
    spec = importlib.util.spec_from_file_location("zerocore_patches", _FOLDER / "patches.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _change(name):
    """Applies the table's changes to a complete module. One that cannot be changed is no module to go on with."""
    try:
        for change in _finder.changes[name]:
            if isinstance(change, str):
                file, function = change.rsplit(".", 1)
                inside = "" if file.startswith("zerocore.") else "zerocore.as_deepspeed."
                change = getattr(importlib.import_module(inside + file), function)
            change(sys.modules[name])
    except BaseException:
        sys.modules.pop(name, None)
        raise


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the package `deepspeed`, and has each module of the table changed when it is complete: during its own import
    it, and those that import it, have only a part of their names."""

    def __init__(self):
        self.changes = {}  # {a module's name: functions, or "file.function" of as_deepspeed}

    def find_spec(self, fullname, path=None, target=None):
        if fullname == "deepspeed":
            spec = importlib.util.spec_from_file_location(fullname, _SHIM / "deepspeed/__init__.py",
                                                          submodule_search_locations=[str(_SHIM / "deepspeed")])
            _when_complete(spec)
            return spec
        if fullname not in self.changes:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None) if finder is not self else None
            spec = find(fullname, path, target) if find is not None else None
            if spec is not None:
                _when_complete(spec)
                return spec
        return None


_finder = _Finder()


def _when_complete(spec):
    """Has the module of the spec changed when its import ends. That is when importlib sets `_initializing` to False; no
    hook is called then, and a loader's ends earlier."""
    kind = type(spec)

    def end(self, initializing):
        if initializing:
            return
        self.__class__ = kind
        self._initializing = False
        if self.name in sys.modules:  # else the import has failed
            _change(self.name)

    spec.__class__ = type(kind.__name__, (kind,), {"_initializing": property(lambda self: True, end)})


if os.environ.get(VARIABLE, "") not in ("", "0"):
    install()
