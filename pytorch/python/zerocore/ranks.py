"""The ranks that a launcher has started, one process each."""

import atexit
import functools
import multiprocessing
import os
import sys
import threading
import time
import weakref

import torch

from . import _native, ending, evaluation, launch, signals
from .saved_state import bytes_of

_ranks = None
_engines = []  # weak references, in the order in which all ranks made them
_failed = None  # the error with which a worker of multiprocessing ends


def ranks():
    """The ranks of this job; the first call starts them. A script without a launcher is one rank."""
    global _ranks
    if _ranks is None:
        _watch_errors()
        if multiprocessing.parent_process() is not None:
            _note_exit_of_worker()
        device = device_type()
        _ranks = _native.Ranks(sys.argv, device, launch.rendezvous())
        if device == "cuda":
            torch.cuda.set_device(_ranks.gpu)
        atexit.register(_end)
    return _ranks


def is_started():
    """Returns whether this process knows its ranks."""
    return _ranks is not None


def device_type():
    """Returns the ranks' device: "cuda" if torch and this build both support GPUs, unless DeepSpeed's variable DS_ACCELERATOR
    is cpu. Starts no ranks."""
    asked = os.environ.get("DS_ACCELERATOR", "")
    if asked not in ("", "cpu", "cuda"):
        raise _native.ConfigError(f"DS_ACCELERATOR is {asked!r}; expected cpu or cuda")
    if asked == "cuda" and not _native.has_cuda:
        raise _native.ConfigError("DS_ACCELERATOR is cuda, and zerocore was built without CUDA: nvcc, or a torch "
                                  "with CUDA, was missing")
    if asked:
        return asked
    return "cuda" if _native.has_cuda and torch.cuda.is_available() else "cpu"


def engines():
    """Returns the engines of this process that live."""
    return [engine for engine in (reference() for reference in _engines) if engine is not None and engine.native is not None]


def name_among_engines(engine):
    """Returns the class of the engine's module and a number if this process has several engines with an optimizer, and
    else ""."""
    trained = [each for each in engines() if each.optimizer is not None]
    return f"{type(engine.module).__name__} {trained.index(engine) + 1}" if len(trained) > 1 else ""


def register(engine):
    """Ends the engine before the ranks end and, if it trains, after the step in which a signal arrives."""
    reference = weakref.ref(engine)
    engine._number = len(_engines)
    _engines.append(reference)
    if engine.optimizer is not None:
        signals.catch(ranks(), reference)


def text_of_root(job, make):
    """Returns the text that make() returns on rank 0, on all ranks; an error of make() is raised on all of them.
    Collective."""
    error, text = None, b""
    if job.rank == 0:
        try:
            text = b"+" + make().encode()
        except (_native.Error, OSError, ValueError) as raised:
            error, text = raised, f"-{raised}".encode()
    text = bytes_from(job, text).decode()
    if error is not None:
        raise error
    if text.startswith("-"):
        raise _native.UsageError(f"rank 0: {text[1:]}")
    return text[1:]


def _note_exit_of_worker():
    """Notes how a worker of multiprocessing ends. No exception hook is called in it: its start calls sys.exit() with its code
    at last, as torch's does in the handler of the worker's error."""
    leave = sys.exit

    def exit(status=None):
        global _failed
        _failed = (sys.exc_info()[1] or _failed or SystemExit(status)) if status else None
        leave(status)

    sys.exit = exit


def bytes_from(job, data, root=0):
    """Returns the bytes that rank `root` gives, on all ranks. Collective."""
    size = torch.tensor([len(data)])
    job.broadcast(size, root)
    message = torch.zeros(max(1, int(size)), dtype=torch.uint8)
    if data and job.rank == root:
        message[:] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    job.broadcast(message, root)
    return bytes_of(message)[:int(size)]


def _end():
    if isinstance(_failed, _native.PeerFailed):
        time.sleep(1)  # mp.spawn() prints the error of the worker that ends first, and ends the others
    elif _failed is not None:
        _ranks.fail(f"{type(_failed).__name__}: {_failed}", 1)
    if _failed is not None:
        sys.stdout.flush()
        os._exit(1)
    try:
        signals.say_at_end(_ranks.rank == 0)
        evaluation.end_all()
        for number, reference in enumerate(_engines):
            ending.at_exit(number, reference())
    except _native.Error as error:  # an exception here would not change the exit code
        sys.excepthook(type(error), error, error.__traceback__)
    _ranks.end()


@functools.cache
def _watch_errors():
    _native.Error.__init__ = _begin_error
    # Before Python waits for threads, which may wait for other ranks; the public atexit comes after that.
    getattr(threading, "_register_atexit", atexit.register)(_end_after_error)


def uncaught():
    """Returns the exception that ends the script, once Python has printed it, else None. One that a debugger or a test
    runner has caught began in a function."""
    error = getattr(sys, "last_value", None)
    trace = error.__traceback__ if error is not None else None
    if trace is None or hasattr(sys, "ps1"):
        return None
    begin = trace.tb_frame
    return error if begin.f_code.co_name in ("<module>", "_run_module_as_main") else None


def _end_after_error():
    """Reports an error that ends this rank to the other ranks, because they would wait for it."""
    error = uncaught()
    if error is not None and not isinstance(error, (KeyboardInterrupt, SystemExit)):
        _leave(error)


def _leave(error):
    error = _cause_of(error)
    code = getattr(error, "exit_code", 1)
    sys.stdout.flush()
    _end_all(_reason(error), code)
    os._exit(code)


def _begin_error(self, *arguments):
    RuntimeError.__init__(self, *arguments)
    _print_first_cause()


@functools.cache
def _print_first_cause():
    """From now on one rank prints an error that ends all of them, and those that got it from another rank do not. Called when the
    library raises an error: until then Python's own exception hook stays in place."""
    before = sys.excepthook

    def hook(kind, error, traceback):
        sys.stderr = sys.__stderr__  # torch.distributed holds the text back until this hook returns
        if not isinstance(error, _native.PeerFailed) or _prints_for_peer(error):
            before(kind, error, traceback)
            sys.stderr.flush()
        elif getattr(error, "exit_code", 1) == _native.DisagreementError.exit_code and hasattr(error, "call"):
            print(error.call, file=sys.stderr, flush=True)  # the other rank has printed its own call, which differs
        if not isinstance(error, (KeyboardInterrupt, SystemExit)):
            _leave(error)

    sys.excepthook = hook


def _prints_for_peer(error):
    """Returns whether this rank prints an error that it got from another one. Before the ranks exist each has the
    same error, and the first rank prints it."""
    if _ranks is None:
        return launch.launched_rank() == 0
    return _ranks.size == 1 or _ranks.fail(_reason(error), error.exit_code)


def _reason(error):
    return str(error) if isinstance(error, _native.PeerFailed) else f"{type(error).__name__}: {error}"


def _end_all(reason, code):
    if _ranks is None:
        return
    try:
        _ranks.fail(reason, code)  # for `zero run` too
        if _ranks.size > 1 and not launch.by_mpi():  # MPI's launcher ends the others
            _ranks.abort(code)
    except _native.Error:
        pass


def _cause_of(error):
    """Returns the engine's own error if `error` is the RuntimeError that torch's backward makes of any exception."""
    if isinstance(error, _native.Error):
        return error
    for reference in _engines:
        engine = reference()
        if engine is not None and engine.native is not None:
            try:
                engine.native.rethrow()
            except _native.Error as cause:
                if str(cause) not in str(error):
                    print(f"{type(cause).__name__}: {cause}", file=sys.stderr, flush=True)
                return cause
    return error
