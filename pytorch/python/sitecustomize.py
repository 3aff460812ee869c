"""Lets ZEROCORE_AS_DEEPSPEED=1 act from Python's start if the folder of a build is on PYTHONPATH: Python reads zerocore.pth in
site-packages alone, but imports a module of this name from any folder. It is not installed, since other packages may have
one there; it runs the one that it hides."""

import importlib.machinery
import importlib.util
import os
import pathlib
import sys

if os.environ.get("ZEROCORE_AS_DEEPSPEED", "") not in ("", "0"):
    import zerocore_startup  # noqa: F401

_HERE = pathlib.Path(__file__).parent
_hidden = importlib.machinery.PathFinder.find_spec("sitecustomize", [path for path in sys.path if pathlib.Path(path) != _HERE])
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(importlib.util.module_from_spec(_hidden))
