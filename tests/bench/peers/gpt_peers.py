"""GPT-2 training steps in PyTorch on CPU ranks or GPUs, in turns with others (started by ../training.py): by DDP, FSDP2
and DeepSpeed, by ZeroCore's Python package (zero0 to zero3), and by processes that exchange nothing (alone), the limit
for all of them.

Needs an environment with:  pip install torch numpy deepspeed ninja      (and transformers for --hugging-face)
One process per rank; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT must be set for torch.distributed. ZeroCore's ranks
are started by mpirun.
"""

import argparse
import functools
import importlib
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
    """GPT-2 with its tied head; the loss is part of it, since the engines expect one call."""

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


def hugging_face_gpt2(layers, heads, channels, vocabulary, context):
    """Returns the same model in transformers' version, called in the same way."""
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(
        n_layer=layers, n_head=heads, n_embd=channels, vocab_size=vocabulary, n_positions=context, use_cache=False,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    model.blocks = list(model.transformer.h)  # a plain list, so that parameters get no second name
    call = model.forward
    model.forward = lambda tokens, targets: call(input_ids=tokens, labels=targets, shift_labels=targets).loss
    return model.train()


def fused_adamw(parameters):
    return torch.optim.AdamW(parameters, fused=True, **ADAMW)


def torch_step(model, optimizer, batch, autocast):
    with torch.autocast(next(model.parameters()).device.type, torch.bfloat16, enabled=autocast):
        loss = model(*batch())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def ddp(model, batch, bf16):
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = fused_adamw(model.parameters())
    return lambda: torch_step(model, optimizer, batch, bf16)


def fsdp2(model, batch, bf16):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if bf16 else MixedPrecisionPolicy()
    mesh = dist.init_device_mesh(next(model.parameters()).device.type, (dist.get_world_size(),))
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh, mp_policy=policy)
    optimizer = fused_adamw(model.parameters())
    return lambda: torch_step(model, optimizer, batch, False)


def alone(model, batch, bf16):
    """Trains without any exchange; in bf16 the optimizer's states and the weights that it updates are fp32."""
    if not bf16:
        optimizer = fused_adamw(model.parameters())
        return lambda: torch_step(model, optimizer, batch, False)
    masters = [weight.detach().clone() for weight in model.parameters()]
    weights = list(model.to(torch.bfloat16).parameters())
    optimizer = fused_adamw(masters)

    def step():
        loss = model(*batch())
        loss.backward()
        for master, weight in zip(masters, weights):
            master.grad = weight.grad.float()
        nn.utils.clip_grad_norm_(masters, CLIP)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(weights, masters)
        model.zero_grad()
        return loss.item()

    return step


def deepspeed(model, batch, bf16, stage, package="deepspeed"):
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": CLIP, "steps_per_print": 10**9,
              "zero_optimization": {"stage": stage}, "bf16": {"enabled": bf16}, "zero_allow_untested_optimizer": True}
    engine, *_ = importlib.import_module(package).initialize(
        model=model, optimizer=fused_adamw(model.parameters()), config=config)

    def step():
        loss = engine(*batch())
        engine.backward(loss)
        engine.step()
        return loss.item()

    return step


PEERS = {"ddp": ddp, "fsdp2": fsdp2, "alone": alone,
         **{f"ds{stage}": functools.partial(deepspeed, stage=stage) for stage in range(4)},
         **{f"zero{stage}": functools.partial(deepspeed, stage=stage, package="zerocore") for stage in range(4)}}


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
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--hugging-face", action="store_true", help="the model of transformers")
    args = parser.parse_args()

    torch.set_num_threads(1)
    rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["RANK"]
    if args.peer != "alone" and not args.peer.startswith("zero"):
        dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    if args.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") or os.environ["LOCAL_RANK"]))
    torch.manual_seed(1)
    make = hugging_face_gpt2 if args.hugging_face else Gpt
    model = make(args.layers, args.heads, args.channels, args.vocabulary, args.context).to(args.device)
    generator = torch.Generator().manual_seed(7 + int(rank))

    def batch():
        text = torch.randint(args.vocabulary, (args.batch, args.tokens + 1), generator=generator).to(args.device)
        return text[:, :-1], text[:, 1:]

    serve(args.directory, rank, PEERS[args.peer](model, batch, args.bf16))
    sys.stdout.flush()
    os._exit(0)  # skips the shutdown of three frameworks' process groups


if __name__ == "__main__":
    main()
