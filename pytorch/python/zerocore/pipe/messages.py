"""Messages between stages: the bytes of what a unit passes on, a tensor or a tuple of tensors and None."""

import json

import torch

from .. import _native

_ALIGNMENT = 64
_LENGTH = 8  # bytes for the length of the text in front


def tensors_of(outputs, where):
    """Returns the tensors, and None, as a list. Raises UsageError for anything else; `where` names the unit."""
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    if isinstance(outputs, (tuple, list)) and all(each is None or isinstance(each, torch.Tensor) for each in outputs):
        return list(outputs)
    kind = type(outputs).__name__
    if isinstance(outputs, (tuple, list)):
        kind += " with " + ", ".join(sorted({type(each).__name__ for each in outputs}))
    raise _native.UsageError(f"{where} passes on a {kind}; expected a tensor, or a tuple of tensors")


def send(tensors, is_tuple, memory_of, mark=None):
    """Writes the tensors, and a mark for receive(), into memory_of(number of bytes), if there is any."""
    described = [None if each is None else [str(each.dtype).removeprefix("torch."), list(each.shape), each.requires_grad]
                 for each in tensors]
    tensors = [None if each is None else each.detach().contiguous() for each in tensors]
    text = json.dumps({"tuple": is_tuple, "tensors": described, "mark": mark}).encode()
    size = _aligned(_LENGTH + len(text)) + sum(_aligned(each.nbytes) for each in tensors if each is not None)
    memory = memory_of(size)
    if memory is None:
        return
    memory[:_LENGTH].view(torch.int64)[0] = len(text)
    memory[_LENGTH:_LENGTH + len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    at = _aligned(_LENGTH + len(text))
    for each in tensors:
        if each is not None:
            memory[at:at + each.nbytes].view(each.dtype).view(each.shape).copy_(each)
            at += _aligned(each.nbytes)


def receive(memory):
    """Returns (tensors, whether they were a tuple, whether each required a gradient, the mark). The tensors have memory of their
    own."""
    length = int(memory[:_LENGTH].view(torch.int64)[0])
    described = json.loads(bytes(memory[_LENGTH:_LENGTH + length].tolist()))
    at, tensors = _aligned(_LENGTH + length), []
    for each in described["tensors"]:
        if each is None:
            tensors.append(None)
            continue
        dtype, shape = getattr(torch, each[0]), each[1]
        size = torch.Size(shape).numel() * dtype.itemsize
        tensors.append(memory[at:at + size].view(dtype).view(shape).clone())
        at += _aligned(size)
    return tensors, described["tuple"], [bool(each and each[2]) for each in described["tensors"]], described["mark"]


def mark_of(labels):
    """Returns [shape, a number that depends on up to 4096 of the bytes] of each tensor: the last stage compares the labels of
    its micro-batch with those of the first one's."""
    labels = labels if isinstance(labels, (tuple, list)) else [labels]
    marks = []
    for each in (each for each in labels if isinstance(each, torch.Tensor) and each.layout == torch.strided):
        flat = each.detach().cpu().contiguous().flatten().view(torch.uint8)
        some = flat[::max(1, len(flat) // 4096) | 1].to(torch.int64)  # an odd distance: integers have zeros in even places
        marks.append([list(each.shape), int((some * (2 * torch.arange(len(some)) + 1)).sum())])
    return marks


def _aligned(size):
    return -(-size // _ALIGNMENT) * _ALIGNMENT
