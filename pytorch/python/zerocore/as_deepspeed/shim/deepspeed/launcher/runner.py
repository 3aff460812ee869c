"""The deepspeed command: torchrun starts the ranks."""

import argparse
import os
import socket

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)
DEEPSPEED_ENVIRONMENT_NAME = ".deepspeed_env"  # accelerate's launcher uses this name


def main(args=None):
    """deepspeed [--num_gpus N | --include localhost:0,1] [--master_addr A] [--master_port P] [--module] [--no_python] script
    [arguments]"""
    parser = argparse.ArgumentParser("deepspeed", description="Starts ranks of zerocore on this host, by torchrun.")
    parser.add_argument("--num_gpus", "--num_accelerators", type=int, default=-1, help="ranks; as many as GPUs if left out")
    parser.add_argument("-i", "--include", default="", metavar="localhost:0,1", help="the GPUs of this host, a rank for each")
    parser.add_argument("--num_nodes", type=int, default=1)
    for option in ("-H", "--hostfile"), ("-e", "--exclude"), ("--launcher",):
        parser.add_argument(*option, help="refused: this command starts ranks on one host")
    parser.add_argument("--master_addr", default="127.0.0.1")
    parser.add_argument("--master_port", type=int, default=29500)
    parser.add_argument("--module", action="store_true")
    parser.add_argument("--no_python", action="store_true")
    parser.add_argument("--no_local_rank", action="store_true", help="it is in LOCAL_RANK")
    parser.add_argument("--bind_cores_to_rank", action="store_true", help="has no effect: cores are shared evenly")
    parser.add_argument("user_script")
    parser.add_argument("user_args", nargs=argparse.REMAINDER)
    given = parser.parse_args(args)
    for name in ("num_nodes", "hostfile", "exclude", "launcher"):
        if getattr(given, name) not in (None, 1, 0, -1):
            parser.error(f"--{name}: this command starts ranks on one host; on several, run `zero run --hostfile FILE` or torchrun on "
                         "each of them; --include localhost:0,1 chooses GPUs")
    import torch
    from torch.distributed.run import main as torchrun

    slots = _included(parser, given)
    ranks = len(slots) or (given.num_gpus if given.num_gpus > 0 else max(1, torch.cuda.device_count()))
    if slots and torch.cuda.is_available():
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(slots)
    options = ["--nproc-per-node", str(ranks), "--master-addr", given.master_addr, "--master-port", str(given.master_port)]
    options += ["--module"] * given.module + ["--no-python"] * given.no_python
    torchrun([*options, given.user_script, *given.user_args])


def _included(parser, given):
    """Returns the numbers of GPUs that --include names; on CPU ranks they are only counted."""
    host, _, slots = given.include.partition(":")
    names = slots.split(",") if slots else []
    if host not in ("", "localhost", "127.0.0.1", socket.gethostname()) or given.include and not all(map(str.isdigit, names or [""])):
        parser.error(f"--include {given.include}: expected numbers of GPUs of this host, such as localhost:0,1")
    if names and (given.num_gpus > 0 or len(set(names)) < len(names)):
        parser.error(f"--include {given.include}: leave --num_gpus out, and name each GPU once")
    return names


if __name__ == "__main__":  # python -m deepspeed.launcher.runner
    main()
