"""A loop for PyTorch's DistributedDataParallel, and the same loop at ZeRO stage 3, where a rank keeps its part of weights,
gradients and optimizer states.

    torchrun --nproc-per-node 2 ddp_to_stage3.py ddp
    torchrun --nproc-per-node 2 ddp_to_stage3.py stage3

Both print the same losses, and the start line of the second has the bytes next to those of stage 0."""

import sys

import torch
import torch.distributed as dist
from torch import nn

import zerocore

if sys.argv[1:] not in (["ddp"], ["stage3"]):
    sys.exit("expected ddp or stage3: torchrun --nproc-per-node 2 ddp_to_stage3.py stage3")
stage3 = sys.argv[1] == "stage3"
torch.manual_seed(1)
net = nn.Sequential(nn.Embedding(256, 256), *[nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(8)], nn.Linear(256, 256))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
if stage3:
    config = {"train_micro_batch_size_per_gpu": 8, "gradient_clipping": 0, "zero_optimization": {"stage": 3},
              "steps_per_print": 1000}
    model, optimizer, *_ = zerocore.initialize(model=net, optimizer=optimizer, config=config)
    rank = model.global_rank
else:
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(net)
    rank = dist.get_rank()

torch.manual_seed(2 + rank)
for step in range(1, 101):
    tokens = torch.randint(0, 16, (8, 32))
    tokens[:, 1::2] = tokens[:, ::2]  # each token is said twice
    loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    if stage3:
        model.backward(loss)
        model.step()
    else:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if step % 25 == 0 and rank == 0:
        print(f"step {step}: loss {loss.item():.4f}", flush=True)
if not stage3:
    dist.destroy_process_group()
