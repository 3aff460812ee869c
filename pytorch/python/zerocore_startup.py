"""ZEROCORE_AS_DEEPSPEED=1: `import deepspeed` finds zerocore's package of that name, under any launcher. Python runs
this from zerocore.pth when it starts, in launchers too, so at that time it imports neither torch nor zerocore. It reads
that file in site-packages alone: a package on PYTHONPATH does this when it is imported."""

import importlib.abc
import importlib.util
import os
import pathlib
import sys


def install():
    sys.path.insert(0, str(pathlib.Path(__file__).parent / "zerocore/as_deepspeed/shim"))
    functions = {"accelerate.state": "let_accelerate_see_cpu_ranks",
                 "accelerate.accelerator": "let_fsdp_become_a_stage", "argparse": "give_local_rank"}
    sys.meta_path.insert(0, _WhenImported(functions))
    for module, function in functions.items():
        if module in sys.modules:
            _call(function)


def _call(name):
    """Calls a function of zerocore/as_deepspeed/patches.py without importing the package."""
    path = pathlib.Path(__file__).parent / "zerocore/as_deepspeed/patches.py"
    spec = importlib.util.spec_from_file_location("zerocore_patches", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    getattr(module, name)()


class _WhenImported(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Calls a function of the patches once a module has been imported."""

    def __init__(self, functions):
        self._functions = functions
        self._loaders = {}

    def find_spec(self, name, path=None, target=None):
        if name not in self._functions or name in self._loaders:
            return None
        self._loaders[name] = None  # the finders after this one find the module
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            self._loaders[name] = spec.loader
            spec.loader = self
        return spec

    def create_module(self, spec):
        return self._loaders[spec.name].create_module(spec)

    def exec_module(self, module):
        name = module.__spec__.name
        module.__spec__.loader = module.__loader__ = self._loaders[name]
        self._loaders[name].exec_module(module)
        _call(self._functions[name])


if os.environ.get("ZEROCORE_AS_DEEPSPEED", "") not in ("", "0"):
    install()
