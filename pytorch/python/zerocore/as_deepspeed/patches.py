"""Changes that let unmodified scripts and libraries run on ranks. It imports nothing of zerocore before a rank needs it."""

import argparse
import functools
import os
import sys


def give_local_rank():
    """Adds --local_rank to the arguments for parsers that have this option, as DeepSpeed's launcher does for every
    script; scripts without the option do not get it."""
    parse = argparse.ArgumentParser.parse_known_args
    names = ("--local_rank", "--local-rank")
    if hasattr(parse, "gives_local_rank"):
        return

    @functools.wraps(parse)
    def parse_known_args(self, args=None, namespace=None):
        name = next((name for name in names if name in self._option_string_actions), None)
        if name is not None and args is None and "LOCAL_RANK" in os.environ:
            given = sys.argv[1:]
            if not any(word.split("=")[0] in names for word in given):
                args = [f"{name}={os.environ['LOCAL_RANK']}", *given]
        return parse(self, args, namespace)

    parse_known_args.gives_local_rank = True
    argparse.ArgumentParser.parse_known_args = parse_known_args


def let_accelerate_see_cpu_ranks(state=None):
    """Lets accelerate find CPU ranks. Without a GPU it finds no backend and treats each rank as its own job. Whether
    DeepSpeed is requested may become known after its first state. `state`: the module accelerate.state."""
    if state is None:
        from accelerate import state

    prepare = state.PartialState._prepare_backend
    if hasattr(prepare, "sees_cpu_ranks"):
        return

    @functools.wraps(prepare)
    def prepare_backend(self, *args, **kwargs):
        _export_ranks_of_mpi()
        backend, kind = prepare(self, *args, **kwargs)
        by_deepspeed = os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true"
        if backend is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            backend = "gloo"
            if not by_deepspeed:
                kind = state.DistributedType.MULTI_CPU
        elif backend is None and by_deepspeed and "RANK" in os.environ:
            backend = "gloo"
        return backend, kind

    prepare_backend.sees_cpu_ranks = True
    state.PartialState._prepare_backend = prepare_backend


def _export_ranks_of_mpi():
    """Sets torchrun's variables on a rank of mpirun, where nothing else has: accelerate reads its ranks from them."""
    if "RANK" in os.environ or not {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"} & os.environ.keys():
        return
    from zerocore import distributed, launch
    if launch.by_mpi():
        distributed.export_ranks()


def let_fsdp_become_a_stage():
    """Installs the adapters under `accelerate launch` with FSDP's settings, because nothing imports deepspeed there. Does
    nothing in the launcher itself, which is not a rank."""
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true" and "RANK" in os.environ:
        # This setting loads weights only on rank 0, and FSDP sends them to the others. accelerate refuses it without a GPU,
        # and the engine uses each rank's own weights.
        os.environ.update(FSDP_CPU_RAM_EFFICIENT_LOADING="false", FSDP_SYNC_MODULE_STATES="false")
        from zerocore import as_deepspeed
        as_deepspeed.install()
