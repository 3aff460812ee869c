"""Reads whole fp32 weights from a checkpoint, in one process. `zero checkpoint export` writes them to files."""

import json
import os

import torch
from zerocore.checkpoints import read_weights
from zerocore.whole_files import whole_file

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
    """Writes files of at most `max_shard_size`, with an index if there are several; None: one file."""
    weights = read_weights(checkpoint_dir, tag, trained_only=exclude_frozen_parameters)
    name, ending = ("model", "safetensors") if safe_serialization else ("pytorch_model", "bin")
    files, index = _files(weights, f"{name}{{suffix}}.{ending}", max_shard_size)
    os.makedirs(output_dir, exist_ok=True)
    for file, names in files.items():
        with whole_file(os.path.join(output_dir, file)) as path:
            if safe_serialization:
                from safetensors.torch import save_file
                save_file({each: weights[each].clone() for each in names}, path, {"format": "pt"})  # tied ones share memory
            else:
                torch.save({each: weights[each] for each in names}, path)
    if index is not None:
        with open(os.path.join(output_dir, f"{name}.{ending}.index.json"), "w", encoding="utf-8") as file:
            json.dump(index, file, indent=2, sort_keys=True)


def _files(weights, pattern, limit):
    """Returns ({file: names of its weights}, the index or None if there is one file)."""
    whole = {pattern.format(suffix=""): list(weights)}
    if limit is None:
        return whole, None
    try:
        from huggingface_hub import split_torch_state_dict_into_shards
    except ImportError:
        print("zero: max_shard_size needs huggingface_hub, which is not installed: the weights become one file")
        return whole, None
    split = split_torch_state_dict_into_shards(weights, filename_pattern=pattern, max_shard_size=limit)
    index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename} if split.is_sharded else None
    return split.filename_to_tensors, index
