from .._missing import refuse_missing
from . import activation_checkpointing, base_optimizer, dataloader, engine, lr_schedules, utils, zero

__getattr__ = refuse_missing(__name__)
