from zerocore.construction import ZeroParamStatus  # noqa: F401
from zerocore.zero import GatheredParameters  # noqa: F401

from ..._missing import refuse_missing
from ...zero import Init, register_external_parameter, unwrap_model_for_generation  # noqa: F401
from . import config, offload_config, partition_parameters, utils

__getattr__ = refuse_missing(__name__)
