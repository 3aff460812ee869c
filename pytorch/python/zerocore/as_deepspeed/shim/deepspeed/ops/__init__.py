from .._missing import refuse_missing
from . import adagrad, adam, lamb, lion

__getattr__ = refuse_missing(__name__)
