"""Progress of training as the config requests it: lines on the terminal, and records in files. Only rank 0 writes."""

import contextlib
import math
import time

from . import _native
from .ranks import name_among_engines, text_of_root


class Progress:
    """Prints a line every `steps_per_print` steps and the diagnostics that the config requests, and writes the monitors'
    records."""

    def __init__(self, settings, ranks, parameters):
        is_root = ranks.rank == 0
        self._every = settings.steps_per_print if is_root else 0
        text_of_root(ranks, lambda: self._open_monitor(settings))
        self._monitor = self._monitor if is_root else _native.Monitor(settings, False)
        self.events = Events(self._monitor, is_root)
        self._diagnostics = _native.Diagnostics(settings) if is_root else None
        self._parameters, self._ranks = parameters, ranks.size
        self._forward_flops = 0  # of this rank's passes, in the step that flops_profiler profiles
        self._shown, self._since = None, time.monotonic()

    def _open_monitor(self, settings):
        """Opens the monitors' files on rank 0; an error is raised on all ranks."""
        self._monitor = _native.Monitor(settings, True)
        return ""

    def show_start(self, native, settings):
        """Prints the start line and the config's notices."""
        if self._diagnostics is None:
            return
        for line in filter(None, [native.start_line(), *(f"zero: {notice}" for notice in settings.notices)]):
            print(line, flush=True)

    @contextlib.contextmanager
    def counting(self, step):
        """Counts the arithmetic of a forward pass of the step after `step`, if flops_profiler profiles that."""
        if self._diagnostics is None or not self._diagnostics.profiles_after(step):
            yield
            return
        from torch.utils.flop_counter import FlopCounterMode  # imports triton
        with FlopCounterMode(display=False) as counter:
            yield
        self._forward_flops += counter.get_total_flops()

    def diagnose(self, native, step, samples):
        """Prints the diagnostics that are due after a step; `samples` is the number in a step."""
        if self._diagnostics is None:
            return
        flops = 3 * self._forward_flops * self._ranks  # backward takes twice as much as forward
        for line in native.diagnose(self._diagnostics, self._monitor, step, self._parameters, samples, flops).splitlines():
            print(f"zero: {line}", flush=True)

    def note_step(self, step, samples, rates, skipped, engine):
        """Reports an optimizer step: its result, the samples since the start, the groups' rates, the number of steps skipped
        so far, and the engine, whose net is named if there are several."""
        self._monitor.write(samples, step)
        if self._shown is None:
            self._shown = step.step - 1
        if not self._every or step.step % self._every:
            return
        now = time.monotonic()
        steps_per_second = (step.step - self._shown) / max(now - self._since, 1e-9)
        self._shown, self._since = step.step, now
        net = name_among_engines(engine)
        words = [f"{net}, step {step.step}" if net else f"step {step.step}", _loss_in_words(step), f"gradient norm {step.grad_norm:.4g}",
                 "rate " + ", ".join(f"{rate:.4g}" for rate in dict.fromkeys(rates)), f"{steps_per_second:.3g} steps/s"]
        if step.loss_scale != 1:
            words.append(f"loss scale {step.loss_scale:g}")
        if skipped:
            words.append(f"{skipped} skipped")
        print("zero: " + " | ".join(words), flush=True)


class Events:
    """DeepSpeed's `engine.monitor`: values of the script's own, in the files that have the engine's."""

    def __init__(self, monitor, is_root):
        self._monitor, self._tells = monitor, is_root

    @property
    def enabled(self):
        """Whether the config has a file for them; the same on all ranks."""
        return self._monitor.writes_events

    def write_events(self, event_list, flush=True):
        """Writes each (tag, value, step) as the config's `tensorboard`, `csv_monitor` and `zero_core.json_lines` say, on rank 0.
        `step` is what the script counts; the engine's own values have the number of samples."""
        if self._tells and not self.enabled:
            self._tells = False
            print("zero: engine.monitor writes no events: the config has no tensorboard, csv_monitor or zero_core.json_lines", flush=True)
        for tag, value, step in event_list:
            self._monitor.write_event(tag, float(value), int(step))


def _loss_in_words(step):
    """A loss that is not known is NaN, and one that is NaN makes the norm NaN too."""
    if math.isnan(step.loss) and not math.isnan(step.grad_norm):
        return "loss unknown (no engine.backward())"
    return f"loss {step.loss:.4f}"


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
