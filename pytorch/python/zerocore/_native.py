"""Loads the extension for this torch: the package has one for each minor version of torch that it was built for, since
torch's binary interface changes with each. The loaded module takes the place of this one."""

import importlib.machinery
import importlib.util
import pathlib
import re
import sys
import sysconfig

import zerocore_command

from ._build import version

_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


def _files():
    """Returns {(2, 15): path} of the extensions for this Python."""
    found = {}
    for path in (pathlib.Path(__file__).parent / "binaries").glob("torch*" + _SUFFIX):
        major, minor = re.match(r"torch(\d+)\.(\d+)", path.name).groups()
        found[int(major), int(minor)] = path
    return dict(sorted(found.items()))


def _words():
    """Returns the words after `python -m zerocore`, and None in another program. While Python imports the package for it, the
    first word is "-m"."""
    return sys.argv[1:] if sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)] == "zerocore" else None


def _refuse(problem, files):
    """Raises the error; a command that needs no torch goes on, and another one ends with the error's text alone."""
    words = _words()
    if words and zerocore_command.is_for_tool(words):
        zerocore_command.main()
    built = ", ".join(f"{major}.{minor}" for major, minor in files) or "no torch"
    newest = "".join(f"pip install 'torch=={major}.{minor}.*'" for major, minor in list(files)[-1:])
    text = (f"{problem}: this zerocore {version} is built for torch {built} and Python {sys.version_info[0]}."
            f"{sys.version_info[1]}: {newest or 'install the wheel for this Python'}, or build zerocore in this environment "
            "(scripts/make_wheel.sh). The command `zero` works without torch")
    if words is not None:
        sys.exit(f"zerocore: {text}")
    raise ImportError(text, name=__name__) from None


def _load():
    files = _files()
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        _refuse("there is no torch in this environment", files)
    here = tuple(int(number) for number in re.findall(r"\d+", torch.__version__)[:2])
    if here not in files:
        _refuse(f"this is torch {torch.__version__}", files)
    loader = importlib.machinery.ExtensionFileLoader(__name__, str(files[here]))
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(__name__, files[here], loader=loader))
    loader.exec_module(module)
    sys.modules[__name__] = module


_load()
