import torch

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


def clone_tensors_for_torch_save(item, device=torch.device("cpu")):
    """Tensors that are parts of larger ones become whole, so that torch.save writes no more than them."""
    if isinstance(item, torch.Tensor):
        return item.detach().clone().to(device)
    if isinstance(item, (list, tuple)):
        return type(item)(clone_tensors_for_torch_save(value, device) for value in item)
    if isinstance(item, dict):
        return type(item)({key: clone_tensors_for_torch_save(value, device) for key, value in item.items()})
    return item
