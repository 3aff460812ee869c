"""Signals that request a stop: Ctrl-C (SIGINT), SIGTERM, and SIGUSR2, which `zero run` sends.

Once an engine trains, a signal to any rank lets all ranks finish the optimizer step. Then each raises
KeyboardInterrupt at the same place or, if the script reads engine.stop_requested, that becomes true. A second signal
to the same rank ends the job at once."""

import signal

_SAVED, _NOT_SAVED = 20, 21  # exit codes, as of train_gpt

_engines = None  # weak references to engines that train; None: signals act as the program or Python has set them
_requested = False
_asked = False  # whether the script reads engine.stop_requested
_code = None  # the exit code for the uncaught exception


class Stopped(KeyboardInterrupt, SystemExit):
    """A KeyboardInterrupt that sets the exit code of the script if it is not caught."""

    @property
    def code(self):
        """The exit code; Python reads it as it ends the script, while the engines still exist."""
        global _code
        _code = _SAVED if _is_saved() else _NOT_SAVED
        return _code


def catch(job, reference):
    """Called for each engine that trains. Handlers that the program has installed stay."""
    global _engines
    if _engines is None:
        _engines = []
        defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGUSR2: signal.SIG_DFL}
        job.catch_signals([int(number) for number, handler in defaults.items() if signal.getsignal(number) is handler])
    _engines.append(reference)


def is_requested():
    """Returns the value of engine.stop_requested."""
    global _asked
    _asked = True
    return _requested


def note_request(engine, is_root):
    """Called after a step in which some rank had a signal. Raises on all ranks, once."""
    global _requested
    if _requested:
        return
    _requested = True
    text = f"a signal requests a stop; the ranks have finished step {engine.global_steps}"
    if is_root:
        print(f"zero: {text}", flush=True)
    if not _asked:
        raise Stopped(text)


def say_at_end(is_root):
    """Prints, on rank 0, whether the run can be resumed from a checkpoint, if a signal ended it."""
    if is_root and _code == _NOT_SAVED:
        print("zero: the last steps are in no checkpoint: catch KeyboardInterrupt, or read engine.stop_requested after "
              "each step, to save before the end", flush=True)


def _is_saved():
    """Returns whether a checkpoint has the last step of each engine that exists."""
    engines = [reference() for reference in _engines or []]
    return all(engine.is_saved for engine in engines if engine is not None)
