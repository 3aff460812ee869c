from .._missing import refuse_missing
from . import lr_schedules

__getattr__ = refuse_missing(__name__)
