import torch

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


def move_to_device(item, device, criterion_func=lambda tensor: True):
    """Tensors in lists, tuples and dicts."""
    if isinstance(item, torch.Tensor):
        return item.to(device) if criterion_func(item) else item
    if isinstance(item, (list, tuple)):
        return type(item)(move_to_device(each, device, criterion_func) for each in item)
    if isinstance(item, dict):
        return {key: move_to_device(each, device, criterion_func) for key, each in item.items()}
    return item
