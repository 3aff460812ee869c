import random
import resource
import sys

import torch
from zerocore.ranks import ranks

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


def move_to_device(item, device, criterion_func=lambda tensor: True):
    """Moves the tensors in lists, tuples and dicts to a device."""
    if isinstance(item, torch.Tensor):
        return item.to(device) if criterion_func(item) else item
    if isinstance(item, (list, tuple)):
        return type(item)(move_to_device(each, device, criterion_func) for each in item)
    if isinstance(item, dict):
        return {key: move_to_device(each, device, criterion_func) for key, each in item.items()}
    return item


def set_random_seed(seed):
    """Seeds random, torch and, if the program uses it, numpy."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    torch.manual_seed(seed)


def empty_cache():
    """Does nothing: the engine allocates its memory once."""


def see_memory_usage(message, force=False):
    """Prints the resident memory of rank 0's process; nothing without `force`, as in DeepSpeed."""
    if force and ranks().rank == 0:
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * resource.getpagesize()
        print(f"{message}: {resident / 2**30:.2f} GiB resident", flush=True)
