"""Prints the ranks that accelerate finds under plain mpirun. With "late" nothing tells accelerate of them."""

import sys

import torch

if "imported" in sys.argv:
    import zerocore
from accelerate import Accelerator

net = torch.nn.Linear(2, 2)
config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}}
if "late" in sys.argv:
    import zerocore
    accelerator = Accelerator()
    zerocore.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), config=config)
else:
    from accelerate.utils import DeepSpeedPlugin
    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=config))
    engine, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
print(f"rank {accelerator.process_index} of {accelerator.num_processes}", flush=True)
