"""An engine that a program has already been given, and that is replaced by one made later."""

from .engine import Engine


class Succeeded(Engine):
    """Stands for another engine: all attributes and calls are that one's."""

    def __getattribute__(self, name):
        return getattr(object.__getattribute__(self, "_engine"), name)

    def __setattr__(self, name, value):
        setattr(object.__getattribute__(self, "_engine"), name, value)

    def __delattr__(self, name):
        delattr(object.__getattribute__(self, "_engine"), name)

    def __del__(self):
        """Does not end the other engine, as an engine's own end does."""


def succeed(earlier, engine):
    """Makes an engine whose model zerocore.initialize() was given again, and which has ended, stand for the new one."""
    object.__setattr__(earlier, "__class__", Succeeded)
    attributes = object.__getattribute__(earlier, "__dict__")
    attributes.clear()
    attributes["_engine"] = engine
