"""torch.distributed among the ranks, for values that a script exchanges itself; the engine never uses it."""

import atexit
import inspect
import os
import socket
import sys

import torch.distributed as dist

from . import _native, evaluation, launch
from .ranks import is_started, ranks, text_of_root, uncaught
from .wrapping import replace_once

_COLLECTIVES = ("all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "barrier",
                "broadcast", "broadcast_object_list", "gather", "gather_object", "reduce", "reduce_scatter",
                "reduce_scatter_tensor", "scatter", "scatter_object_list")


_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def init_distributed(dist_backend=None, auto_mpi_discovery=True, distributed_port=None, verbose=True, timeout=None,
                     init_method=None, dist_init_required=None, config=None, rank=-1, world_size=-1):
    """Makes a gloo group, whatever backend is named, for values that the script exchanges itself. A process without a launcher, as
    of torch.multiprocessing, meets the others by `init_method`, `rank` and `world_size`; with one, these must be the launcher's.
    Collective."""
    if not dist.is_initialized():
        _join_as_given(init_method, rank, world_size, timeout)
    if not dist.is_initialized():
        export_ranks()
        more = {} if timeout is None else {"timeout": timeout}
        try:
            store = launch.store_for_torch()
            if store is not None:
                more = {**more, "store": store, "rank": ranks().rank, "world_size": ranks().size}
            dist.init_process_group("gloo", **more)
            atexit.register(_destroy_group)
        except dist.DistNetworkError as error:
            raise _native.ConfigError(
                f"zerocore.init_distributed: the ranks do not meet at MASTER_ADDR {os.environ['MASTER_ADDR']}, MASTER_PORT "
                f"{os.environ['MASTER_PORT']}: {error}; unset both, and the ranks choose a free port themselves") from None


def _join_as_given(init_method, rank, world_size, timeout):
    if rank < 0 and world_size < 0:
        return
    if launch.is_launched() or is_started():
        job = ranks()
        for name, given, own in (("rank", rank, job.rank), ("world_size", world_size, job.size)):
            if given not in (-1, own):
                raise _native.UsageError(f"init_distributed: {name} is {given}, and the launcher of this process says {own}: leave it out, "
                                         "or start the script without a launcher")
        return
    dist.init_process_group("gloo", init_method=init_method or "env://", rank=rank, world_size=world_size,
                            **({} if timeout is None else {"timeout": timeout}))
    atexit.register(_destroy_group)
    export_ranks()


def process_group(job):
    """Returns torch's group over the data ranks, which it makes if the script has not. Collective in the first call. Raises
    UsageError between the stages of a pipeline."""
    if job.stages > 1:
        raise _native.UsageError("the stages of a pipeline have no groups of torch.distributed; the engine sums gradients, and "
                                 "engine.grid says where a rank is")
    init_distributed()
    return dist.group.WORLD


def _destroy_group():
    """Destroys the group before the interpreter ends: torch may abort the process at exit if gloo's threads still run."""
    if dist.is_initialized():
        dist.destroy_process_group()


def export_ranks():
    """Sets the environment variables that torchrun and DeepSpeed's launcher set. Under MPI its ranks replace the
    values in the environment; under torchrun and similar launchers the ranks keep their rendezvous. Collective."""
    job = ranks()
    os.environ.update(RANK=str(job.rank), LOCAL_RANK=str(job.local_rank), WORLD_SIZE=str(job.size),
                      LOCAL_WORLD_SIZE=str(job.local_size))
    if not launch.has_store():
        _export_rendezvous(job)
    for name in _COLLECTIVES:
        replace_once(dist, name, _after_evaluation)


def _after_evaluation(collective):
    """Returns the collective of torch.distributed with a preparation: since a rank that waits in it could not serve
    the evaluation passes of the others, it first ends the open evaluations."""
    signature = inspect.signature(collective)

    def call(*args, **kwargs):
        if signature.bind(*args, **kwargs).arguments.get("group") in (None, dist.group.WORLD):
            evaluation.end_all()
        return collective(*args, **kwargs)

    return call


_exported = None  # the (MASTER_ADDR, MASTER_PORT) that this module chose


def _export_rendezvous(job):
    global _exported
    given = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    if given == _exported:
        return
    problem, remark, address, port = text_of_root(job, lambda: "\n".join(_rendezvous(job, *given))).split("\n")
    if problem:
        raise _native.ConfigError(problem)
    if remark and job.rank == 0:
        print(f"zerocore: {remark}", file=sys.stderr, flush=True)
    _exported = address, port
    os.environ.update(MASTER_ADDR=address, MASTER_PORT=port)


def _rendezvous(job, address, port):
    """Returns the rendezvous: an error, a remark, the address, the port. Rank 0 decides, since it listens. A
    variable left over from another launcher must not make gloo wait for a host that is not there."""
    one_host = job.local_size == job.size
    own_name = socket.gethostname()
    own = "127.0.0.1" if one_host else own_name
    here = not address or address in ("127.0.0.1", "localhost", "::1", own_name) or (not one_host and _can_listen_at(address))
    if not here:
        why = "all ranks are on this host" if one_host else f"it is no address of rank 0's host, {own_name}"
        free = _free_port()
        return "", f"MASTER_ADDR {address} is not used, since {why}: the ranks meet at {own}:{free}", own, free
    if not port:
        return "", "", address if address and not one_host else own, _free_port()
    problem = _problem_of_port(port)
    return problem, "", address or own, port


def _can_listen_at(address):
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.bind(place)
    except OSError:
        return False
    return True


def _problem_of_port(port):
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        return f"MASTER_PORT is {port!r}; expected a port from 1 to 65535, or unset it: the ranks take a free one"
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", int(port)))
            listener.listen()
        except OSError as error:
            return (f"MASTER_PORT {port} cannot be used on rank 0's host, {socket.gethostname()}: {error.strerror}; another "
                    "job may have it: unset MASTER_PORT, and the ranks take a free one, or set another")
    return ""


def _free_port():
    with socket.socket() as listener:
        listener.bind(("", 0))
        return str(listener.getsockname()[1])


@atexit.register
def _explain_missing_ranks():
    """Says after a KeyError for LOCAL_RANK how to start the script: scripts for other launchers read it before anything has
    set it."""
    error = uncaught()
    if isinstance(error, KeyError) and error.args and error.args[0] in _VARIABLES:
        print(f"zerocore: mpirun does not set {error.args[0]}: start the script with `python -m zerocore.as_deepspeed "
              "script.py`, or call zerocore.init_distributed() before this line", file=sys.__stderr__, flush=True)
