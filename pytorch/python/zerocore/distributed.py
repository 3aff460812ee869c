"""torch.distributed among the ranks, for scripts that exchange values of their own; the engine never uses it."""

import functools
import inspect
import os
import socket

import torch.distributed as dist

from . import evaluation
from .ranks import ranks, text_of_root

_COLLECTIVES = ("all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "barrier",
                "broadcast", "broadcast_object_list", "gather", "gather_object", "reduce", "reduce_scatter",
                "reduce_scatter_tensor", "scatter", "scatter_object_list")


def init_distributed(dist_backend=None, auto_mpi_discovery=True, distributed_port=None, verbose=True, timeout=None,
                     init_method=None, dist_init_required=None, config=None, rank=-1, world_size=-1):
    """A gloo group, whatever the backend that is named: the ranks are CPU ranks. Collective."""
    if not dist.is_initialized():
        export_ranks()
        more = {} if timeout is None else {"timeout": timeout}
        dist.init_process_group("gloo", **more)


def export_ranks():
    """Puts into the environment what torchrun and DeepSpeed's launcher put there. Collective."""
    job = ranks()
    os.environ.update(RANK=str(job.rank), LOCAL_RANK=str(job.local_rank), WORLD_SIZE=str(job.size),
                      LOCAL_WORLD_SIZE=str(job.local_size))
    address, port = _rendezvous(job)
    os.environ.setdefault("MASTER_ADDR", address)
    os.environ.setdefault("MASTER_PORT", str(port))
    for name in _COLLECTIVES:
        if not hasattr(getattr(dist, name), "ends_evaluations"):
            setattr(dist, name, _after_evaluation(getattr(dist, name)))


def _after_evaluation(collective):
    """A rank that waits in a collective of its own cannot take part in the evaluation passes of the others."""
    signature = inspect.signature(collective)

    @functools.wraps(collective)
    def call(*args, **kwargs):
        if signature.bind(*args, **kwargs).arguments.get("group") in (None, dist.group.WORLD):
            evaluation.end_all()
        return collective(*args, **kwargs)

    call.ends_evaluations = True
    return call


def _rendezvous(job):
    """A port of the root's host that is free now."""
    def address():
        with socket.socket() as listener:
            listener.bind(("", 0))
            port = listener.getsockname()[1]
        host = "127.0.0.1" if job.local_size == job.size else socket.gethostname()
        return f"{host} {port}"

    host, port = text_of_root(job, address).split()
    return host, int(port)
