"""The rendezvous of ranks for torch.distributed: rendezvous.py init | early | parsed"""

import os
import sys

if sys.argv[1] == "parsed":
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("what")
    parser.add_argument("--local_rank", type=int, required=True)
    import deepspeed

    local_rank = deepspeed.add_config_arguments(parser).parse_args().local_rank
    print(f"local rank {local_rank} of {os.environ['LOCAL_RANK']}")
    sys.exit()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import zerocore  # noqa: E402

if sys.argv[1] == "early":
    print(os.environ["LOCAL_RANK"])
zerocore.init_distributed(dist_backend="nccl")
ranks = torch.ones(1)
dist.all_reduce(ranks)
print(f"met {int(ranks)} ranks at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}")
zerocore.init_distributed()
