"""The receiving side of engine.stream_changes(). Needs torch, and no ranks."""

import torch

from . import _native
from .parts import named_parts

_WORD = 1 << 64
_PIECE = 1 << 20  # elements that are hashed at a time
_BITS = {1: (torch.uint8, 0xff), 2: (torch.int16, 0xffff), 4: (torch.int32, 0xffffffff)}


class WeightReceiver:
    """Keeps tensors equal to the weights of an engine in another job, and says when it cannot:

        stream = engine.stream_changes(since, budget)        # the trainer; send stream.head, then each of stream
        ok = receiver.receive(head, pieces)                  # the server; send receiver.digest, the next `since`

    `tensors`: a module, or {name: tensor}, contiguous, with the names, shapes and dtypes of the engine. They are changed in
    place, piece by piece, so that a stream that breaks off leaves a mixture, and receive() the next time a request for all.
    `digest`: that of the weights, as the engine computes it; None before all weights have come, and after a stream was lost."""

    def __init__(self, tensors):
        if isinstance(tensors, torch.nn.Module):
            tensors = named_parts(tensors)
        self._tensors = {name: tensor.detach() for name, tensor in tensors.items()}
        self.digest = self.sequence = None

    def receive(self, head, pieces):
        """Takes a stream in, and returns whether the tensors have the sender's digest now. If not, a stream was lost, or was
        not for these weights: `digest` is None then, which asks the sender for all weights. Raises UsageError for a name, a
        shape or a dtype that does not fit."""
        since, self.digest = self.digest, None
        if head["since"] is not None and head["since"] != since:
            for _ in pieces:
                pass  # the sender waits for that
            return False
        digest = 0 if head["since"] is None else since
        with torch.no_grad():
            for name, shape, numbers, values in pieces:
                digest += self._take(name, shape, numbers, values)
        self.sequence = head["sequence"]
        self.digest = head["digest"] if digest % _WORD == head["digest"] else None
        return self.digest is not None

    def is_intact(self):
        """Returns whether the tensors still have the digest, by hashing all of them: nobody else has changed one."""
        return self.digest is not None and self.digest == sum(
            _hash(name, tensor.view(-1)) for name, tensor in self._tensors.items()) % _WORD

    def _take(self, name, shape, numbers, values):
        """Returns the change of the digest."""
        tensor = self._tensors.get(name)
        if tensor is None or tuple(tensor.shape) != tuple(shape) or tensor.dtype != values.dtype:
            own = "none of that name" if tensor is None else f"{tuple(tensor.shape)} in {tensor.dtype}"
            raise _native.UsageError(f"WeightReceiver: the stream has {name}, {tuple(shape)} in {values.dtype}, and the receiver "
                                     f"{own}")
        flat, values = tensor.view(-1), values.to(tensor.device).view(-1)
        if numbers is None:
            flat.copy_(values)
            return _hash(name, flat)
        numbers = numbers.to(tensor.device, torch.int64)
        change = _hash(name, values, numbers) - _hash(name, flat[numbers], numbers)
        flat[numbers] = values
        return change


def _hash(name, values, numbers=None):
    """The sum of the hashes of elements, by name and number, as Engine::digest() has it; 0 for integers of several bytes."""
    if values.element_size() not in _BITS or (values.element_size() > 1 and not values.is_floating_point()):
        return 0
    dtype, mask = _BITS[values.element_size()]
    key, total = _signed(_of_text(name) ^ _of_text("value")), 0
    for at in range(0, values.numel(), _PIECE):
        bits = values[at:at + _PIECE].view(dtype).to(torch.int64) & mask
        own = torch.arange(at, at + bits.numel(), device=bits.device) if numbers is None else numbers[at:at + _PIECE]
        total += int(_mixed(_mixed(own + key) + bits).sum())
    return total


def _of_text(text):
    """FNV-1a."""
    value = 0xcbf29ce484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001b3 % _WORD
    return value


def _signed(word):
    return word - _WORD if word >= _WORD // 2 else word


def _mixed(words):
    """The finalizer of splitmix64, in integers with a sign."""
    for shift, factor in ((30, 0xbf58476d1ce4e5b9), (27, 0x94d049bb133111eb)):
        words = (words ^ (words >> shift & (1 << 64 - shift) - 1)) * _signed(factor)
    return words ^ (words >> 31 & (1 << 33) - 1)
