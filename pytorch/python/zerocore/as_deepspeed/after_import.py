"""Changes of modules that scripts import later: none of them is imported for the sake of a change."""

import importlib.abc
import importlib.util
import sys

_actions = {}  # by the module's name


def after_import(name, action):
    """Calls action(module) once the module is there."""
    if name in sys.modules:
        action(sys.modules[name])
        return
    _actions[name] = action
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname not in _actions:
            return None
        action = _actions.pop(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, action)
        return spec


class _Loader(importlib.abc.Loader):
    """The module's own loader, and then the action."""

    def __init__(self, own, action):
        self._own, self._action = own, action

    def create_module(self, spec):
        return self._own.create_module(spec)

    def exec_module(self, module):
        self._own.exec_module(module)
        self._action(module)

    def __getattr__(self, name):
        return getattr(self._own, name)


_finder = _Finder()
