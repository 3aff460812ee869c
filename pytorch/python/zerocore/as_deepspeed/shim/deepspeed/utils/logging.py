import logging

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)
logger = logging.getLogger("DeepSpeed")


_said = set()


def log_dist(message, ranks=None, level=logging.INFO):
    from zerocore import ranks as job
    if not ranks or job().rank in ranks or -1 in ranks:
        logger.log(level, message)


def log_dist_once(message, ranks=None, level=logging.INFO):
    if message not in _said:
        _said.add(message)
        log_dist(message, ranks, level)


def warning_once(message):
    log_dist_once(message, level=logging.WARNING)


def set_log_level_from_string(log_level_str, custom_logger=None):
    level = logging.getLevelNamesMapping().get(log_level_str.upper())
    if level is None:
        raise ValueError(f"{log_level_str!r} is not a logging level; expected debug, info, warning, error or critical")
    (custom_logger or logger).setLevel(level)
