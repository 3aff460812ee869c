from ..._missing import refuse_missing
from . import partition_parameters

__getattr__ = refuse_missing(__name__)
