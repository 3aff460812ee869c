"""A script that installs zerocore's deepspeed itself, and reads LOCAL_RANK in its first line."""

import os

local_rank = int(os.environ["LOCAL_RANK"])

import zerocore.as_deepspeed  # noqa: E402

zerocore.as_deepspeed.install()
import deepspeed  # noqa: E402

deepspeed.init_distributed()
assert local_rank == deepspeed.comm.get_local_rank()
print(f"local rank {local_rank} of {deepspeed.comm.get_world_size()}", flush=True)
