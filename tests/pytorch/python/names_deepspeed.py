"""Names of DeepSpeed that transformers 5.24, accelerate 1.15, trl 1.16, peft, Lightning 2.6, LLaMA-Factory and axolotl
import are there; others are one error that names them, modules too."""

import os

import deepspeed
import torch

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
from deepspeed.runtime.lr_schedules import LRRangeTest, OneCycle, WarmupCosineLR, WarmupDecayLR, WarmupLR
from deepspeed.runtime.zero.config import ZeroStageEnum; assert ZeroStageEnum.weights == 3
from deepspeed.runtime.zero.utils import is_zero_param
from deepspeed.utils import safe_get_local_fp32_param, safe_set_full_grad, safe_set_full_optimizer_state
from deepspeed.utils.tensor_fragment import safe_set_local_grad
from deepspeed.utils.init_on_device import OnDevice
from deepspeed.utils.logging import log_dist_once, set_log_level_from_string, warning_once
from deepspeed.utils.groups import get_data_parallel_world_size, get_model_parallel_rank
from deepspeed import DeepSpeedConfigError
deepspeed.runtime.zero.GatheredParameters
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from deepspeed.runtime.pipe.engine import PipelineEngine
deepspeed.utils.logging.logger.setLevel
deepspeed.zero.register_external_parameter
from deepspeed.runtime.zero import partition_parameters; partition_parameters._orig_torch_arange
"""
MISSING = {
    "import deepspeed.datastates": "deepspeed.datastates: zerocore.as_deepspeed does not have this name",
    "import deepspeed.no_such_module": "deepspeed.no_such_module: zerocore.as_deepspeed does not have this name",
    "import deepspeed.moe.layer": "deepspeed.moe: zerocore.as_deepspeed refuses this name",
    "from deepspeed.runtime.pipe.topology import PipeDataParallelTopology": "give PipelineModule num_stages",
    "from deepspeed.runtime.zero import stage3": "deepspeed.runtime.zero.stage3: zerocore.as_deepspeed refuses",
    "from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs_all_live": "zero config explain says what memory",
    "from deepspeed.runtime.fp16.loss_scaler import LossScaler": "classes that a loader would have to allow",
    "from deepspeed.monitor.monitor import MonitorMaster": "csv_monitor sections say",
    "deepspeed.init_inference": "deepspeed.init_inference: zerocore.as_deepspeed refuses this name",
    "from deepspeed.utils import tensor_to_bytes": "deepspeed.utils.tensor_to_bytes: zerocore.as_deepspeed does not",
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


def leaf_modules():
    """Leaf modules named by class, by the class's name, by the module's name and by its suffix."""
    from deepspeed.utils import (
        get_z3_leaf_modules, set_z3_leaf_modules, set_z3_leaf_modules_by_name, set_z3_leaf_modules_by_suffix,
        unset_z3_leaf_modules, z3_leaf_module,
    )
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(2, 2)))
    assert set_z3_leaf_modules(net, [torch.nn.Linear]) == [net[0], net[1][1]] == get_z3_leaf_modules(net)
    assert unset_z3_leaf_modules(net, ["Linear"]) == [net[0], net[1][1]] and not z3_leaf_module(net[0])
    assert set_z3_leaf_modules_by_name(net, ["1.0"]) == ([net[1][0]], [])
    assert set_z3_leaf_modules_by_suffix(net, [".1", "1"]) == ([net[1][1], net[1]], [])
    assert set_z3_leaf_modules_by_name(net, ["1.0", "2"], flag=False, raise_if_not_found=False) == ([net[1][0]], ["2"])
    assert set_z3_leaf_modules_by_suffix(net, ["x"], raise_if_not_found=False) == ([], ["x"])
    assert not z3_leaf_module(net[1][0]) and get_z3_leaf_modules(net) == [net[1], net[1][1]]
    assert set_z3_leaf_modules(net, [torch.nn.Conv2d], raise_if_not_found=False) == []
    for call, names in ((set_z3_leaf_modules, ["Conv2d"]), (set_z3_leaf_modules_by_name, ["0", "2"]),
                        (set_z3_leaf_modules_by_suffix, ["1", "x"])):
        try:
            call(net, names)
        except ValueError as error:
            assert names[-1] in str(error), error
        else:
            raise AssertionError(f"{call.__name__}: there is no {names[-1]}")


def accelerators():
    """The accelerator is the device that the ranks take; this machine may have no GPU, so torch says that there are two."""
    from unittest import mock

    from zerocore import _native
    chosen = []
    gpus = {"is_available": lambda: True, "device_count": lambda: 2, "current_device": lambda: 1, "set_device": chosen.append}
    assert get_accelerator().device_name(1) == "cpu" and get_accelerator().current_device_name() == "cpu"
    with mock.patch.multiple(torch.cuda, **gpus), mock.patch.object(_native, "has_cuda", True), \
            mock.patch.dict(os.environ, {"DS_ACCELERATOR": ""}):
        gpu = get_accelerator()
        assert (gpu._name, gpu.device_name(), gpu.device_name(1), gpu.device_name(3)) == ("cuda", "cuda", "cuda:1", "cuda:1")
        assert (gpu.current_device(), gpu.current_device_name(), gpu.device_count()) == (1, "cuda:1", 2)
        gpu.set_device(2)
        assert chosen == [0] and gpu.communication_backend_name() == "nccl"
        assert gpu.memory_allocated is torch.cuda.memory_allocated
        try:
            gpu.create_graph
        except AttributeError as error:
            assert "does not have this name of DeepSpeed" in str(error), error
        else:
            raise AssertionError("create_graph is there")
        assert not gpu.on_accelerator(torch.ones(1)) and not gpu.is_synchronized_device()
    cpu = get_accelerator()
    assert cpu.on_accelerator(torch.ones(1)) and cpu.is_synchronized_device() and torch.bfloat16 in cpu.supported_dtypes()
    assert 0 < cpu.memory_allocated() <= cpu.max_memory_allocated() < cpu.total_memory() and cpu.available_memory() > 0
    state = cpu.get_rng_state()
    drawn = torch.rand(3)
    cpu.set_rng_state(state)
    assert torch.equal(torch.rand(3), drawn)
    with cpu.stream(cpu.Stream):
        assert cpu.current_stream() is None


def as_another_name():
    """Some names are there after `import zerocore as deepspeed`; DeepSpeed's others end with advice."""
    import zerocore
    assert zerocore.get_accelerator() is deepspeed.get_accelerator() and zerocore.comm.all_reduce is deepspeed.comm.all_reduce
    assert zerocore.comm.get_world_size is torch.distributed.get_world_size and zerocore.comm.P2POp is torch.distributed.P2POp
    try:
        zerocore.ops.adam
    except AttributeError as error:
        assert "ZEROCORE_AS_DEEPSPEED=1" in str(error), error
    else:
        raise AssertionError("zerocore.ops is there")


leaf_modules()
accelerators()
as_another_name()
print("every name")
