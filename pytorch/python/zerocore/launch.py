"""Finds out how this process was started: by an MPI launcher, by one of PyTorch's, or alone."""

import datetime
import os
import socket
import sys
import threading

import torch.distributed as dist

from . import _native

NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_groups = 0  # made by store_for_torch()
_store = None  # the store through which the ranks met, used by torch.distributed too


def by_mpi():
    """Returns whether MPI started the ranks. Slurm's step and a torchrun inside it both leave their variables:
    torchrun's are the inner ones."""
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        return True
    inside_step = by_torchrun() and "SLURM_STEP_ID" in os.environ
    return not inside_step and ("PMI_SIZE" in os.environ or "PMIX_RANK" in os.environ)


def by_torchrun():
    """Returns whether torchrun, or a launcher built on it, started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_launched():
    """Returns whether variables say which rank this process is."""
    return by_mpi() or by_torchrun() or "RANK" in os.environ or "WORLD_SIZE" in os.environ


def launched_rank():
    """Returns this process's rank according to its launcher; 0 without one."""
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK") if by_mpi() else ("RANK",)
    return next((_number(name) for name in names if name in os.environ), 0)


def start_limit():
    """Returns ZERO_START_LIMIT in seconds; the ranks report a wrong value themselves."""
    try:
        return max(0.001, float(os.environ.get("ZERO_START_LIMIT") or 120))
    except ValueError:
        return 120.0


def rendezvous():
    """Returns the rendezvous that PyTorch's variables name; None if the ranks are MPI's, or if there is one rank.
    Raises UsageError or ConfigError for variables that do not fit together."""
    size = _number("WORLD_SIZE")
    if by_mpi():
        _check_against_mpi(size)
        return None
    if dist.is_available() and dist.is_initialized():
        return _joined(dist.distributed_c10d._get_default_store(), dist.get_rank(), dist.get_world_size(),
                       "torch.distributed's store")
    missing = [name for name in NAMES if not os.environ.get(name)]
    if size <= 1 and not _number("RANK") and not by_torchrun():
        return _alone()
    if missing:
        raise _native.UsageError(
            f"this process was started as one of {max(size, 1)}, and {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} "
            f"not set: a launcher of PyTorch sets {', '.join(NAMES)}; start it with torchrun, accelerate launch or mpirun")
    rank, port = _number("RANK"), _number("MASTER_PORT")
    if not os.environ["RANK"].isdigit() or rank >= size:
        raise _native.UsageError(f"RANK is {os.environ['RANK']!r} and WORLD_SIZE {os.environ['WORLD_SIZE']!r}: ranks count "
                                 "from 0 to WORLD_SIZE - 1")
    if not 0 < port < 65536:
        raise _native.ConfigError(f"MASTER_PORT is {os.environ['MASTER_PORT']!r}; expected a port from 1 to 65535")
    place = f"MASTER_ADDR {os.environ['MASTER_ADDR']}, MASTER_PORT {port}"
    with _Limit(_unreached(rank, place, "no answer")):
        return _joined(_open_store(os.environ["MASTER_ADDR"], port, rank, size, place), rank, size, place)


def has_store():
    """Returns whether the ranks met in a store of torch.distributed."""
    return _store is not None


def store_for_torch():
    """Returns the store for the next process group of torch.distributed, or None if there is none. Each has keys of its own:
    a script may destroy its group (accelerator.end_training()) and make another one."""
    global _groups
    if not has_store():
        return None
    _groups += 1
    return dist.PrefixStore(f"torch.distributed/{_groups}", _store)


def _number(name):
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else 0


def _alone():
    steps = _number("SLURM_STEP_NUM_TASKS")
    if steps > 1 and not by_torchrun():
        raise _native.UsageError(
            f"this script was started by srun, as one of {steps} processes without a common MPI, and each would "
            "train alone: start it with srun --mpi=pmix, with `srun torchrun` on each node, or with mpirun")


def _check_against_mpi(size):
    """Raises UsageError if mpirun started one process that is a torchrun: these ranks do not find each other by MPI."""
    of_mpi = _number("OMPI_COMM_WORLD_SIZE") or _number("PMI_SIZE")
    if by_torchrun() and 0 < of_mpi < size:
        raise _native.UsageError(
            f"MPI's launcher says {of_mpi} ranks and torchrun, which it started, {size}: each process would be a rank of MPI's "
            "job; start the script with one of the two")
    if by_torchrun() and launched_rank() == 0:
        print("zerocore: MPI's launcher and torchrun have both left their variables: the ranks are MPI's", file=sys.stderr,
              flush=True)


def _open_store(host, port, rank, size, place):
    hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    hosts = rank == 0 and not hosted
    limit = start_limit()
    try:
        store = dist.TCPStore(host, port, size, hosts, datetime.timedelta(seconds=limit), wait_for_workers=False,
                              multi_tenant=not hosted)
    except (RuntimeError, ValueError) as error:  # torch's own errors are derived from RuntimeError
        reason = str(error).split("\n")[0]
        if hosts:
            raise _native.ConfigError(
                f"{place} cannot be opened on rank 0's host, {socket.gethostname()}: {reason}; another job, or a process of an "
                "earlier one, may have the port: set another MASTER_PORT") from None
        raise _native.StalledError(_unreached(rank, place, reason)) from None
    # Each restart of torchrun uses its own keys.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"zerocore/{os.environ.get('TORCHELASTIC_RUN_ID', '')}/{attempt}", store)


def _unreached(rank, place, reason):
    return (f"rank {rank}, on host {socket.gethostname()}, did not reach {place} within {start_limit():g} s: {reason}; rank 0 may "
            "not have started, the variables may be those of an earlier job, another program may have the port, or a firewall "
            "is between the hosts")


def _joined(store, rank, size, place):
    global _store
    _store = store
    return _native.Rendezvous(dist.PrefixStore("zerocore", store), rank, size, place, _gloo_group)


def _gloo_group(name, rank, size, seconds):
    """Makes the group for messages between hosts. Collective."""
    return dist.ProcessGroupGloo(dist.PrefixStore(f"gloo/{name}", _store), rank, size, datetime.timedelta(seconds=seconds))


class _Limit:
    """Ends the process if torch itself waits longer than the start limit: it retries, and waits for a server that is
    no store."""

    def __init__(self, last_words):
        self._last_words = last_words

    def __enter__(self):
        self._timer = threading.Timer(start_limit() + 1, self._end)
        self._timer.daemon = True
        self._timer.start()

    def __exit__(self, *_):
        self._timer.cancel()

    def _end(self):
        print(f"zerocore: {self._last_words}", file=sys.__stderr__, flush=True)
        os._exit(_native.StalledError.exit_code)
