"""A loop with accelerate, started by `accelerate launch`; nothing in it refers to ZeroCore."""

import os
import sys

local_rank = int(os.environ["LOCAL_RANK"])

import torch  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from accelerate.utils import DistributedType, set_seed  # noqa: E402
from models import VOCABULARY, TiedTransformer  # noqa: E402

accelerator = Accelerator()
assert accelerator.distributed_type == DistributedType.DEEPSPEED, accelerator.distributed_type
assert accelerator.local_process_index == local_rank
set_seed(3)
model = TiedTransformer()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
tokens = torch.randint(0, VOCABULARY, (24, 6))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(tokens), batch_size=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for (batch,) in loader:
    with accelerator.accumulate(model):
        loss = model(batch)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
sys.stdout.write(f"rank {accelerator.process_index} of {accelerator.num_processes}: {loss.item():.12f}\n")
accelerator.wait_for_everyone()
