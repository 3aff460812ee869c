from zerocore.loaders import RepeatingLoader  # noqa: F401

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)
