"""A forward pass fails, and accelerate frees its engine, as a script does before it tries a smaller batch."""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import DeepSpeedPlugin


class Failing(torch.nn.Linear):
    def forward(self, x):
        raise MemoryError("the batch does not fit")


accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config={
    "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": int(sys.argv[1])}}))
net = Failing(2, 2)
engine, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
try:
    engine(torch.ones(1, 2))
except MemoryError:
    accelerator.free_memory()
    print("freed after a failure", flush=True)
