"""The ranks that mpirun has started, one process each."""

import atexit
import os
import sys
import weakref

import torch

from . import _native, evaluation, signals

_ranks = None
_engines = []  # weak references, in the order in which all ranks have made them


def ranks():
    """The ranks of this job; the first call starts MPI. A script without mpirun is one rank."""
    global _ranks
    if _ranks is None:
        _refuse_other_launchers()
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
    """The engine ends before MPI does, and, if it trains, in order where a signal asks for that."""
    reference = weakref.ref(engine)
    _engines.append(reference)
    if engine.optimizer is not None:
        signals.catch(ranks(), reference)


def text_of_root(job, make):
    """What make() returns on rank 0, on all ranks; what it raises is raised on all of them. Collective."""
    error, text = None, b""
    if job.rank == 0:
        try:
            text = b"+" + make().encode()
        except (_native.Error, OSError, ValueError) as raised:
            error, text = raised, f"-{raised}".encode()
    size = torch.tensor([len(text)])
    job.broadcast(size)
    message = torch.zeros(max(1, int(size)), dtype=torch.uint8)
    if text:
        message[:] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    job.broadcast(message)
    if error is not None:
        raise error
    text = bytes(message[:int(size)].tolist()).decode()
    if text.startswith("-"):
        raise _native.UsageError(f"rank 0: {text[1:]}")
    return text[1:]


def _end():
    try:
        signals.say_at_end(_ranks.rank == 0)
        evaluation.end_all()
        for reference in _engines:
            engine = reference()
            if engine is not None:
                engine.destroy()
    except _native.Error as error:  # an exception here would not change the exit code
        sys.excepthook(type(error), error, error.__traceback__)
    _ranks.end()


# By the variable in which a launcher says how many processes it has started.
_MPI_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_OTHER_SIZES = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS")


def _refuse_other_launchers():
    """Processes that do not know each other's MPI would each train alone."""
    if any(name in os.environ for name in (*_MPI_SIZES, "PMIX_RANK")):
        return
    size = max((_number(name) for name in _OTHER_SIZES))
    if size <= 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    launcher = ("torchrun" if "TORCHELASTIC_RUN_ID" in os.environ else
                "the deepspeed launcher" if "CROSS_SIZE" in os.environ else
                "srun" if _number("SLURM_STEP_NUM_TASKS") > 1 else "another launcher than mpirun (WORLD_SIZE is set)")
    if any(name.startswith("ACCELERATE_") for name in os.environ):
        launcher = f"accelerate launch ({launcher})"
    raise _native.UsageError(
        f"this script was started by {launcher}, as one of {max(size, 1)} processes that do not know each other's MPI, and "
        "each would train alone: start it with `mpirun -n N python script.py` or `zero run -n N python script.py` (with "
        "`python -m zerocore.as_deepspeed script.py` where it imports deepspeed), or under Slurm with srun --mpi=pmix")


def _number(name):
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else 0


def _tell_others_of_errors():
    """An exception that ends this rank is told to the others, which would wait for it."""
    before = sys.excepthook

    def hook(kind, error, traceback):
        sys.stderr = sys.__stderr__  # torch.distributed holds the text back until this hook returns
        before(kind, error, traceback)
        sys.stderr.flush()
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            return
        error = _cause_of(error)
        if _ranks.size > 1 and not isinstance(error, _native.PeerFailed):
            try:
                _ranks.fail(f"{kind.__name__}: {error}")
            except _native.Error:
                pass
        os._exit(getattr(error, "exit_code", 1))

    sys.excepthook = hook


def _cause_of(error):
    """The engine's own error, where it went through torch's backward, which makes a RuntimeError of any."""
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
