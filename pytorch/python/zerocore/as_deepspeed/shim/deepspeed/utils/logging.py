import logging

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)
logger = logging.getLogger("DeepSpeed")


def log_dist(message, ranks=None, level=logging.INFO):
    from zerocore import ranks as job
    if not ranks or job().rank in ranks or -1 in ranks:
        logger.log(level, message)
