from .._missing import refuse_missing
from . import adagrad, adam, lion

__getattr__ = refuse_missing(__name__)
