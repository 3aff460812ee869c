"""deepspeed.checkpointing: recomputation by torch. Activations are neither partitioned nor moved."""

import torch.utils.checkpoint

from ..._missing import refuse_missing

__getattr__ = refuse_missing(__name__)
_configured = False


def configure(mpu_=None, deepspeed_config=None, partition_activations=None, contiguous_checkpointing=None,
              num_checkpoints=None, checkpoint_in_cpu=None, synchronize=None, profile=None):
    for name, value in (("partition_activations", partition_activations), ("checkpoint_in_cpu", checkpoint_in_cpu),
                        ("contiguous_checkpointing", contiguous_checkpointing)):
        if value:
            raise ValueError(f"deepspeed.checkpointing.configure: {name} is not supported: activations stay on their rank")
    global _configured
    _configured = True


def is_configured():
    return _configured


def reset():
    """Does nothing: no state is kept between passes."""


def checkpoint(function, *args):
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False)
