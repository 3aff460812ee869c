import logging

from zerocore.utils import (  # noqa: F401
    safe_get_full_fp32_param, safe_get_full_grad, safe_get_full_optimizer_state, safe_set_full_fp32_param,
)

from .._missing import refuse_missing
from . import groups

__getattr__ = refuse_missing(__name__)
logger = logging.getLogger("DeepSpeed")


def log_dist(message, ranks=None, level=logging.INFO):
    from zerocore import ranks as job
    if not ranks or job().rank in ranks or -1 in ranks:
        logger.log(level, message)


def set_z3_leaf_modules(model, leaf_module_classes):
    """Any module works as it is, experts without tokens too."""
    return [module for module in model.modules() if isinstance(module, tuple(leaf_module_classes))]
