"""Notices that a script divides its loss by the number of micro-batches of a step, which the engine does too."""

import torch


class Divisions:
    """Looks at losses for a division by `steps`, the number of micro-batches. It says so once, on rank 0."""

    def __init__(self, steps, is_root):
        self._steps = steps
        self._looks = steps > 1 and is_root
        self._factor = 1.0  # the gradient that a loss without a division has

    def begin_backward(self, loss, factor):
        """Called with a loss that the engine multiplies by `factor` before its backward, or with None after it. Without
        a factor the script says that it divides."""
        self._factor = factor
        if self._looks and loss is not None and factor is not None and self._divides(loss.grad_fn):
            self._say()

    def _divides(self, node):
        """Returns whether the last operation of a graph was a division by the number of micro-batches."""
        by = {"DivBackward0": self._steps, "MulBackward0": 1 / self._steps}.get(node.name() if node is not None else "")
        other = None if by is None else getattr(node, "_saved_other", None)
        return other is not None and other.numel() == 1 and not other.requires_grad and _is(other.item(), by)

    def watch(self, result):
        """Called with what a training pass returns: looks at the gradient of its loss, if there is exactly one number
        among its values."""
        if not self._looks:
            return
        losses = [each for each in _values(result) if isinstance(each, torch.Tensor) and each.numel() == 1 and each.requires_grad]
        if len(losses) == 1:
            losses[0].register_hook(self._look)

    def _look(self, gradient):
        if self._looks and self._factor is not None and _is(gradient.item(), self._factor / self._steps):
            self._say()

    def _say(self):
        self._looks = False
        print(f"zero: the script divides its loss by {self._steps}, it seems, and the engine divides by "
              "gradient_accumulation_steps too: leave the script's division out, or call engine.backward(loss, "
              "scale_wrt_gas=False)", flush=True)


def _is(value, expected):
    return abs(value - expected) <= 1e-6 * abs(expected)


def _values(result):
    if isinstance(result, dict):
        return result.values()
    return result if isinstance(result, (tuple, list)) else (result,)
