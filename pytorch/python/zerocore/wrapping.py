"""Replaces functions and methods of other libraries, until zerocore.as_deepspeed.uninstall()."""

import functools

from zerocore_startup import put


def replaces(holder, name):
    """Returns a decorator that makes function(self, own, *args, **kwargs) a method of a class; `own` is the method that the
    class had."""
    def decorate(function):
        own = getattr(holder, name)

        @functools.wraps(own)
        def method(self, *args, **kwargs):
            return function(self, own, *args, **kwargs)

        put(holder, name, method)
        return method
    return decorate


def replace_once(owner, name, make):
    """Replaces a function of a module or a method of a class by make(function), unless it has been replaced so already."""
    own = getattr(owner, name)
    if not hasattr(own, "is_by_zerocore"):
        ours = functools.wraps(own)(make(own))
        ours.is_by_zerocore = True
        put(owner, name, ours)
