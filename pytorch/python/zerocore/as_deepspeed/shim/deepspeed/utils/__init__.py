from .._missing import refuse_missing
from ..runtime.dataloader import RepeatingLoader
from . import groups, init_on_device, logging, nvtx, tensor_fragment, z3_leaf_module, zero_to_fp32
from .init_on_device import OnDevice
from .logging import log_dist, log_dist_once, logger, set_log_level_from_string
from .nvtx import instrument_w_nvtx
from .tensor_fragment import (
    safe_get_full_fp32_param, safe_get_full_grad, safe_get_full_optimizer_state, safe_get_local_fp32_param,
    safe_get_local_grad, safe_get_local_optimizer_state, safe_set_full_fp32_param, safe_set_full_grad,
    safe_set_full_optimizer_state, safe_set_local_fp32_param, safe_set_local_grad, safe_set_local_optimizer_state,
    safe_update_full_grad_vectorized,
)
from .z3_leaf_module import (
    get_z3_leaf_modules, set_z3_leaf_module, set_z3_leaf_modules, set_z3_leaf_modules_by_name,
    set_z3_leaf_modules_by_suffix, unset_z3_leaf_modules, z3_leaf_module, z3_leaf_parameter,
)

__getattr__ = refuse_missing(__name__)
