"""The ranks that mpirun has started, one process each."""

import atexit
import os
import sys
import weakref

import torch

from . import _native, evaluation

_ranks = None
_engines = []  # weak references, in the order in which all ranks have made them


def ranks():
    """The ranks of this job; the first call starts MPI. A script without mpirun is one rank."""
    global _ranks
    if _ranks is None:
        _refuse_torchrun()
        device = _chosen_device()
        _ranks = _native.Ranks(sys.argv, device)
        if device == "cuda":
            torch.cuda.set_device(_ranks.gpu)
        _tell_others_of_errors()
        atexit.register(_end)
    return _ranks


def _chosen_device():
    """GPUs where torch and this build have them. DeepSpeed's DS_ACCELERATOR=cpu says otherwise."""
    asked = os.environ.get("DS_ACCELERATOR", "")
    if asked not in ("", "cpu", "cuda"):
        raise _native.ConfigError(f"DS_ACCELERATOR is {asked!r}; expected cpu or cuda")
    if asked == "cuda" and not _native.has_cuda:
        raise _native.ConfigError("DS_ACCELERATOR is cuda, and zerocore was built without CUDA: nvcc, or a torch "
                                  "with CUDA, was missing")
    if asked:
        return asked
    return "cuda" if _native.has_cuda and torch.cuda.is_available() else "cpu"


def register(engine):
    """The engine ends before MPI does."""
    _engines.append(weakref.ref(engine))


def text_of_root(job, make):
    """What make() returns on rank 0, a text of at most 4096 bytes, on all ranks. Collective."""
    message = torch.zeros(4096, dtype=torch.uint8)
    if job.rank == 0:
        text = make().encode()
        message[:len(text)] = torch.tensor(list(text), dtype=torch.uint8)
    job.broadcast(message)
    return bytes(message.tolist()).rstrip(b"\0").decode()


def _end():
    try:
        evaluation.end_all()
        for reference in _engines:
            engine = reference()
            if engine is not None:
                engine.destroy()
    except _native.Error as error:  # an exception here would not change the exit code
        sys.excepthook(type(error), error, error.__traceback__)
    _ranks.end()


def _refuse_torchrun():
    started_by_mpi = any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"))
    if "TORCHELASTIC_RUN_ID" in os.environ and not started_by_mpi:
        raise _native.UsageError(
            "this script was started by torchrun, whose processes do not know each other's MPI: "
            "start it with `mpirun -n N python script.py` or `zero run -n N python script.py`")


def _tell_others_of_errors():
    """An exception that ends this rank is told to the others, which would wait for it."""
    before = sys.excepthook

    def hook(kind, error, traceback):
        sys.stderr = sys.__stderr__  # torch.distributed holds the text back until this hook returns
        before(kind, error, traceback)
        sys.stderr.flush()
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            return
        if _ranks.size > 1 and not isinstance(error, _native.PeerFailed):
            try:
                _ranks.fail(f"{kind.__name__}: {error}")
            except _native.Error:
                pass
        os._exit(getattr(error, "exit_code", 1))

    sys.excepthook = hook
