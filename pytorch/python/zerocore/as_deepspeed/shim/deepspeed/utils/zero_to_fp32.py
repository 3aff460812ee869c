"""Reads whole fp32 weights from a checkpoint, in one process. `zero checkpoint export` writes them to files."""

import torch
from zerocore.checkpoints import read_weights

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


def get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag=None, exclude_frozen_parameters=False,
                                             lazy_mode=False):
    return read_weights(checkpoint_dir, tag, trained_only=exclude_frozen_parameters)


def load_state_dict_from_zero_checkpoint(model, checkpoint_dir, tag=None):
    model.load_state_dict(read_weights(checkpoint_dir, tag), strict=False)
    return model


def convert_zero_checkpoint_to_fp32_state_dict(checkpoint_dir, output_dir, max_shard_size="5GB",
                                               safe_serialization=False, tag=None, exclude_frozen_parameters=False):
    if safe_serialization:
        raise ValueError("zero checkpoint export DIR OUT writes safetensors, of any size")
    import os
    os.makedirs(output_dir, exist_ok=True)
    torch.save(read_weights(checkpoint_dir, tag, trained_only=exclude_frozen_parameters),
               os.path.join(output_dir, "pytorch_model.bin"))
