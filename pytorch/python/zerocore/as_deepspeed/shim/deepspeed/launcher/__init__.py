from .._missing import refuse_missing
from . import runner

__getattr__ = refuse_missing(__name__)
