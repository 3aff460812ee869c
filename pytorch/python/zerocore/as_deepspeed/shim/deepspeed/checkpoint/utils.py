import torch

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


def clone_tensors_for_torch_save(item, device=torch.device("cpu")):
    """Copies tensors that are views of larger ones, because torch.save would write the larger ones whole. A tensor
    under two names stays one."""
    return _cloned(item, device, {})


def _cloned(item, device, known):
    if isinstance(item, torch.Tensor):
        place = (item.data_ptr(), item.dtype, item.shape, item.stride())
        if place not in known or item.numel() == 0:
            known[place] = item.detach().clone().to(device)
        return known[place]
    if isinstance(item, (list, tuple)):
        return type(item)(_cloned(value, device, known) for value in item)
    if isinstance(item, dict):
        return type(item)({key: _cloned(value, device, known) for key, value in item.items()})
    return item
