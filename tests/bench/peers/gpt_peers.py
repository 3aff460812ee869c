"""GPT-2 training steps of PyTorch DDP, FSDP2 and DeepSpeed on CPU ranks, in turns with ours (started by ../training.py).

Needs an environment with:  pip install torch numpy deepspeed ninja
One process per rank; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torch.distributed wants them.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from turns_peer import serve

ADAMW = {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
CLIP = 1.0


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.c_attn, self.attn_proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.c_fc, self.mlp_proj = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def attention(self, x):
        heads = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=-1))
        return self.attn_proj(F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2 with its tied head; the loss is part of it, as the engines want one call."""

    def __init__(self, layers, heads, channels, vocabulary, context):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, channels), nn.Embedding(context, channels)
        self.blocks = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(channels)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def fused_adamw(model):
    return torch.optim.AdamW(model.parameters(), fused=True, **ADAMW)


def torch_step(model, optimizer, batch, autocast):
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = model(*batch())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def ddp(model, batch, bf16):
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = fused_adamw(model)
    return lambda: torch_step(model, optimizer, batch, bf16)


def fsdp2(model, batch, bf16):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if bf16 else MixedPrecisionPolicy()
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh, mp_policy=policy)
    optimizer = fused_adamw(model)
    return lambda: torch_step(model, optimizer, batch, False)


def deepspeed(model, batch, bf16, stage):
    import deepspeed as ds
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": CLIP, "steps_per_print": 10**9,
              "zero_optimization": {"stage": stage}, "bf16": {"enabled": bf16}, "zero_allow_untested_optimizer": True}
    engine, *_ = ds.initialize(model=model, optimizer=fused_adamw(model), config=config)

    def step():
        loss = engine(*batch())
        engine.backward(loss)
        engine.step()
        return loss.item()

    return step


PEERS = {"ddp": ddp, "fsdp2": fsdp2,
         **{f"ds{stage}": lambda *a, stage=stage: deepspeed(*a, stage=stage) for stage in range(4)}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--channels", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--bf16", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = Gpt(args.layers, args.heads, args.channels, args.vocabulary, args.context)
    generator = torch.Generator().manual_seed(7 + dist.get_rank())

    def batch():
        text = torch.randint(args.vocabulary, (1, args.tokens + 1), generator=generator)
        return text[:, :-1], text[:, 1:]

    serve(args.directory, os.environ["RANK"], PEERS[args.peer](model, batch, args.bf16))
    sys.stdout.flush()
    os._exit(0)  # the process groups of three frameworks have nothing to say at the end


if __name__ == "__main__":
    main()
