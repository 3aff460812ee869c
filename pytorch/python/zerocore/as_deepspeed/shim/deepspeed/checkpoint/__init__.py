from .._missing import refuse_missing
from . import utils

__getattr__ = refuse_missing(__name__)
