"""A loop with accelerate, started by `accelerate launch`; nothing in it refers to ZeroCore. Then plain training, with the
batches of all ranks in one process."""

import os
import sys

local_rank = int(os.environ["LOCAL_RANK"])

import torch  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from accelerate.utils import DistributedType, set_seed  # noqa: E402
from models import VOCABULARY, TiedTransformer  # noqa: E402


def new_model():
    set_seed(3)
    model = TiedTransformer()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def plain_losses(batches, ranks):
    """Returns the losses of each rank's last batch."""
    model, optimizer = new_model()
    for step in range(0, len(batches), ranks):
        losses = [model(batch) for batch in batches[step:step + ranks]]
        (sum(losses) / ranks).backward()
        clip = accelerator.deepspeed_plugin.deepspeed_config["gradient_clipping"]
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
    return [loss.item() for loss in losses]


accelerator = Accelerator()
assert accelerator.distributed_type == DistributedType.DEEPSPEED, accelerator.distributed_type
assert accelerator.local_process_index == local_rank
model, optimizer = new_model()
tokens = torch.randint(0, VOCABULARY, (24, 6))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(tokens), batch_size=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for (batch,) in loader:
    with accelerator.accumulate(model):
        loss = model(batch)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
rank, ranks = accelerator.process_index, accelerator.num_processes
plain = plain_losses(tokens.split(2), ranks)[rank]
sys.stdout.write(f"rank {rank} of {ranks} in {accelerator.mixed_precision}: {loss.item():.12f}, plain {plain:.12f}\n")
accelerator.wait_for_everyone()
