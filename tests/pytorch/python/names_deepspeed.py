"""Names of DeepSpeed that transformers 5.24, accelerate 1.15, trl 1.16, peft, Lightning 2.6, LLaMA-Factory and axolotl
import are there; others are one error that names them, modules too."""

import deepspeed

THERE = """
from deepspeed import DeepSpeedEngine, comm as dist
from deepspeed.accelerator import get_accelerator
from deepspeed.checkpoint.utils import clone_tensors_for_torch_save
from deepspeed.comm.comm import all_reduce
from deepspeed.launcher.runner import DEEPSPEED_ENVIRONMENT_NAME
from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
from deepspeed.ops.adam.cpu_adam import DeepSpeedCPUAdam
from deepspeed.ops.lamb import FusedLamb
from deepspeed.accelerator.real_accelerator import get_accelerator
from deepspeed.runtime.utils import see_memory_usage
from deepspeed.runtime.zero import GatheredParameters, Init
from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict
from deepspeed.ops.lion import DeepSpeedCPULion
from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer
from deepspeed.runtime.engine import DeepSpeedEngine
from deepspeed.runtime.utils import move_to_device
from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus
from deepspeed.utils import groups, logger, set_z3_leaf_modules
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
import deepspeed.checkpointing
deepspeed.checkpointing.configure
deepspeed.runtime.lr_schedules.VALID_LR_SCHEDULES
deepspeed.runtime.zero.GatheredParameters
deepspeed.utils.logging.logger.setLevel
deepspeed.zero.register_external_parameter
from deepspeed.runtime.zero import partition_parameters; partition_parameters._orig_torch_arange
"""
MISSING = {
    "import deepspeed.datastates": "deepspeed.datastates: zerocore.as_deepspeed does not have this name",
    "import deepspeed.no_such_module": "deepspeed.no_such_module: zerocore.as_deepspeed does not have this name",
    "import deepspeed.moe.layer": "deepspeed.moe: zerocore.as_deepspeed refuses this name",
    "from deepspeed import PipelineModule": "deepspeed.PipelineModule: zerocore.as_deepspeed refuses this name",
    "from deepspeed.runtime.zero import stage3": "deepspeed.runtime.zero.stage3: zerocore.as_deepspeed does not",
    "deepspeed.init_inference": "deepspeed.init_inference: zerocore.as_deepspeed refuses this name",
    "from deepspeed.utils import safe_set_full_grad": "deepspeed.utils.safe_set_full_grad: zerocore.as_deepspeed does not",
}
for line in THERE.strip().splitlines():
    exec(line)
for line, part in MISSING.items():
    try:
        exec(line)
    except (ImportError, AttributeError) as error:
        assert part in str(error), error
    else:
        raise AssertionError(f"{line} is there")
print("every name")
