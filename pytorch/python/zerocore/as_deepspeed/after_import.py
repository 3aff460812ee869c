"""Changes modules when a script imports them; it imports none itself."""

import importlib.abc
import importlib.util
import sys

_actions = {}  # lists, by the module's name


def after_import(name, action):
    """Calls action(module) as soon as the module is imported."""
    if name in sys.modules:
        action(sys.modules[name])
        return
    _actions.setdefault(name, []).append(action)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self):
        self._asked = set()  # names that the other finders are searching now, so that this one does not recurse

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in _actions or fullname in self._asked:
            return None
        self._asked.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asked.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads the module with its own loader, then calls the actions."""

    def __init__(self, own):
        self._own = own

    def create_module(self, spec):
        return self._own.create_module(spec)

    def exec_module(self, module):
        self._own.exec_module(module)
        for action in _actions.pop(module.__name__, []):  # none if it is imported a second time
            action(module)

    def __getattr__(self, name):
        return getattr(self._own, name)


_finder = _Finder()
