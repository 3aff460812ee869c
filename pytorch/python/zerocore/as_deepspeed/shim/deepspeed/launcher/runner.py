"""The deepspeed command: torchrun starts the ranks."""

import argparse

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)
DEEPSPEED_ENVIRONMENT_NAME = ".deepspeed_env"  # accelerate's launcher uses this name


def main(args=None):
    """deepspeed [--num_gpus N] [--master_addr A] [--master_port P] [--module] [--no_python] script [arguments]"""
    parser = argparse.ArgumentParser("deepspeed", description="Starts ranks of zerocore on this host, by torchrun.")
    parser.add_argument("--num_gpus", "--num_accelerators", type=int, default=-1, help="ranks; as many as GPUs if left out")
    parser.add_argument("--num_nodes", type=int, default=1)
    parser.add_argument("--master_addr", default="127.0.0.1")
    parser.add_argument("--master_port", type=int, default=29500)
    parser.add_argument("--module", action="store_true")
    parser.add_argument("--no_python", action="store_true")
    parser.add_argument("--no_local_rank", action="store_true", help="it is in LOCAL_RANK")
    parser.add_argument("--bind_cores_to_rank", action="store_true", help="has no effect: cores are shared evenly")
    parser.add_argument("user_script")
    parser.add_argument("user_args", nargs=argparse.REMAINDER)
    given = parser.parse_args(args)
    if given.num_nodes > 1:
        parser.error("--num_nodes: this command starts ranks on one host; on several, run torchrun on each of them")
    import torch
    from torch.distributed.run import main as torchrun

    ranks = given.num_gpus if given.num_gpus > 0 else max(1, torch.cuda.device_count())
    options = ["--nproc-per-node", str(ranks), "--master-addr", given.master_addr, "--master-port", str(given.master_port)]
    options += ["--module"] * given.module + ["--no-python"] * given.no_python
    torchrun([*options, given.user_script, *given.user_args])
