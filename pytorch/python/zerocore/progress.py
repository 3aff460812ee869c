"""Progress of training as the config requests it: lines on the terminal, and records in files. Only rank 0 writes."""

import time

from . import _native


class Progress:
    """Prints a line every `steps_per_print` steps, and writes the monitors' records."""

    def __init__(self, settings, is_root):
        self._every = settings.steps_per_print if is_root else 0
        self._monitor = _native.Monitor(settings, is_root)
        self._shown, self._since = None, time.monotonic()

    def note_step(self, step, samples, rates, skipped):
        """Reports an optimizer step: its result, the samples since the start, the groups' rates, and the number of
        steps skipped so far."""
        self._monitor.write(samples, step)
        if self._shown is None:
            self._shown = step.step - 1
        if not self._every or step.step % self._every:
            return
        now = time.monotonic()
        steps_per_second = (step.step - self._shown) / max(now - self._since, 1e-9)
        self._shown, self._since = step.step, now
        words = [f"step {step.step}", f"loss {step.loss:.4f}", f"gradient norm {step.grad_norm:.4g}",
                 "rate " + ", ".join(f"{rate:.4g}" for rate in dict.fromkeys(rates)), f"{steps_per_second:.3g} steps/s"]
        if step.loss_scale != 1:
            words.append(f"loss scale {step.loss_scale:g}")
        if skipped:
            words.append(f"{skipped} skipped")
        print("zero: " + " | ".join(words), flush=True)


class NoTimer:
    """DeepSpeed's timer, for scripts that call it; it measures nothing, since the engine prints its own times."""

    def start(self):
        """Does nothing."""
        pass

    def stop(self, *args, **kwargs):
        """Does nothing."""
        pass

    def update_epoch_count(self):
        """Does nothing."""
        pass
