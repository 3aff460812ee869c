"""Replaces methods of other libraries' classes, until zerocore.as_deepspeed.uninstall()."""

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
