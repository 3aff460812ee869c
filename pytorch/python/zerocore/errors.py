"""Errors of calls that DeepSpeed asserts."""

from . import _native


class AssertedUsage(_native.UsageError, AssertionError):
    """A UsageError that DeepSpeed raises as an AssertionError, so that scripts catch both."""
