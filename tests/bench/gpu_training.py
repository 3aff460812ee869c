"""Compares GPT-2 and Llama trained by train_gpt and by PyTorch on one GPU, in one run.

  gpu_training.py speed TRAIN_GPT [--model gpt2|gpt2-xl|llama-1.2b] [--batch B] [--fsdp2] [--whole] [--any-order] [--repeat R]
  gpu_training.py losses TRAIN_GPT [--model ...] [--steps 50]

speed: tokens per second, in bf16 with fp32 master weights, ours and PyTorch's in turns: torch.compile, autocast, fused
AdamW, attention by cuDNN, clipping; --fsdp2: fully_shard at world size 1 too. One block, shared by all blocks, and the
loss are compiled; --whole: the whole model as one graph, which takes minutes if there are many blocks. losses: how far
each step's loss is from PyTorch's in fp32, ours in bf16 and PyTorch's own bf16 with fp32 master weights, from the same
start values and tokens; ours may be 1.5 times as far. Without torch: one line, and 77. --device cpu with the models
tiny-gpt2 and tiny-llama tests the script itself.
"""

import argparse
import contextlib
import copy
import os
import pathlib
import socket
import statistics
import sys
import tempfile
import time

try:
    import torch
    from torch import nn

    import gpu_models
    import gpu_run
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

FARTHER = 1.5  # allowed ratio to PyTorch's bf16
UNTOLD = 2.0**-14


def ours(args, folder, steps, more=()):
    return gpu_run.Run(args.program, folder, gpu_run.settings(args.batch), steps, args.device, init=True,
                       any_attention=args.any_attention, more=more)


def groups(model):
    """Returns parameter groups with train_gpt's weight decay: on matrices alone."""
    parameters = gpu_models.own_parameters(model)
    return [{"params": [p for _, p in parameters if p.dim() > 1]},
            {"params": [p for _, p in parameters if p.dim() == 1], "weight_decay": 0.0}]


def with_cudnn(device):
    """Selects attention by cuDNN, or by FlashAttention if cuDNN refuses."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    if device == "cpu":
        return contextlib.nullcontext()
    return sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True)


def shard(model):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]), RANK="0", WORLD_SIZE="1")
    device = next(model.parameters()).device.type
    torch.distributed.init_process_group("nccl" if device == "cuda" else "gloo")
    mesh = torch.distributed.init_device_mesh(device, (1,))
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))


class Peer:
    """PyTorch's step in bf16: by autocast, or by FSDP2's own casts."""

    def __init__(self, args, fsdp2=False, compiled=False):
        self.args, self.cast = args, not fsdp2
        self.model = gpu_models.make(gpu_run.CONFIGS[args.model], args.device)
        if fsdp2:
            shard(self.model)
        self.optimizer = torch.optim.AdamW(groups(self.model), fused=True, **gpu_run.ADAMW)
        self.forward = torch.compile(self.model) if compiled and args.whole else self.model
        if compiled and not args.whole:
            for block in self.model.blocks:
                block.compile()
            self.model.loss_of = torch.compile(gpu_models.loss_of)

    def step(self, text):
        with torch.autocast(self.args.device, torch.bfloat16, enabled=self.cast), with_cudnn(self.args.device):
            loss = self.forward(text[:, :-1], text[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), gpu_run.CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def synchronize(args):
    if args.device == "cuda":
        torch.cuda.synchronize()


def seconds_of_peer(args, peer, text):
    for _ in range(args.warmup):
        peer.step(text)
    synchronize(args)
    start = time.perf_counter()
    for _ in range(args.steps):
        peer.step(text)
    synchronize(args)
    return (time.perf_counter() - start) / args.steps


def speed(args, folder, text):
    tokens = args.batch * args.tokens
    peers = {"torch.compile": {"compiled": True}, **({"fsdp2": {"fsdp2": True}} if args.fsdp2 else {})}
    # Ours without a fixed order, since PyTorch's attention has none in its backward pass either.
    variants = {"ours_any_order": ("--any-order-attention",)} if args.any_order and args.device == "cuda" else {}
    taken = {name: [] for name in ("ours", *variants, *peers)}

    def note(name, seconds):
        taken[name].append(seconds)
        middle = statistics.median(taken[name])
        print(f"{args.model}, {args.batch} x {args.tokens}, {name}: {tokens / seconds:.0f} tokens/s "
              f"({1e3 * seconds:.1f} ms), ours {middle / statistics.median(taken['ours']):.3f} times as fast", flush=True)
        print(f"figure {name}_tokens_per_s {tokens / middle:.0f}")
        if name != "ours":
            print(f"figure ours_to_{name} {middle / statistics.median(taken['ours']):.3f}", flush=True)

    made = {}
    for _ in range(args.repeat):
        run = ours(args, folder, args.warmup + args.steps)
        note("ours", statistics.median(run.step_ms(args.warmup)) / 1e3)
        for name, more in variants.items():
            run = ours(args, folder, args.warmup + args.steps, more)
            note(name, statistics.median(run.step_ms(args.warmup)) / 1e3)
        for name, options in peers.items():
            made[name] = made.get(name) or Peer(args, **options)
            note(name, seconds_of_peer(args, made[name], text))
        if args.device == "cuda":  # ours needs the memory
            torch.cuda.empty_cache()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def losses(args, folder, text):
    exact = peer_losses(args, text, bf16=False)
    theirs = peer_losses(args, text, bf16=True)
    mine = [record["loss"] for record in ours(args, folder, args.steps).records]
    far = lambda found: [abs(a - b) for a, b in zip(found, exact, strict=True)]  # noqa: E731
    # Compares the largest distance so far, since single steps are near by chance. It starts at the part of the loss
    # below which bf16 cannot be told from an exact loss.
    worst = 0.0
    for step, (own, their) in enumerate(zip(map(max_so_far(), far(mine)), map(max_so_far(), far(theirs))), start=1):
        worst = max(worst, own / max(their, exact[step - 1] * UNTOLD))
        if step in (1, 2, 5) or step % 10 == 0:
            print(f"step {step}: fp32 {exact[step - 1]:.6f}, ours off by up to {own:.2e}, PyTorch's bf16 by {their:.2e}")
    print(f"{args.model}: ours is at most {worst:.2f} times as far from PyTorch's fp32 as its own bf16 is")
    print(f"figure farther {worst:.3f}")
    return 0 if worst <= FARTHER else 1


def max_so_far():
    largest = 0.0

    def next_of(value):
        nonlocal largest
        largest = max(largest, value)
        return largest

    return next_of


def peer_losses(args, text, bf16):
    """Returns the losses of a model in fp32, or of one in bf16 with fp32 master weights, like ours and DeepSpeed's."""
    torch.backends.cuda.matmul.allow_tf32 = False
    masters = gpu_models.make(gpu_run.CONFIGS[args.model], args.device)
    model = copy.deepcopy(masters).bfloat16() if bf16 else masters
    optimizer = torch.optim.AdamW(groups(masters), fused=True, **gpu_run.ADAMW)
    found = []
    for _ in range(args.steps):
        loss = model(text[:, :-1], text[:, 1:])
        loss.backward()
        found.append(loss.item())
        for master, parameter in zip(masters.parameters(), model.parameters(), strict=True):
            master.grad = parameter.grad.float()
        nn.utils.clip_grad_norm_(masters.parameters(), gpu_run.CLIP)
        optimizer.step()
        model.zero_grad(set_to_none=True)
        with torch.no_grad():
            for master, parameter in zip(masters.parameters(), model.parameters(), strict=True):
                parameter.copy_(master)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "losses"))
    gpu_run.add_options(parser)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--fsdp2", action="store_true")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--any-order", action="store_true", help="ours also with --any-order-attention")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        print("skipped: PyTorch sees no GPU")
        return 77
    config = gpu_run.CONFIGS[args.model]
    args.tokens = gpu_run.context(config)
    args.batch = args.batch or (gpu_run.BATCH.get(args.model, 4) if args.what == "speed" else 4)
    args.steps = args.steps or (20 if args.what == "speed" else 50)
    # One batch is all the data. Each epoch orders its samples differently, but no loss depends on the order.
    text = torch.tensor(gpu_run.draw_tokens(config["vocab_size"], args.batch * args.tokens + 1))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        gpu_run.write_inputs(folder, config, text.tolist())
        model = gpu_models.make(config, args.device)
        gpu_models.save(model, folder)
        del model
        samples = torch.stack([text[i * args.tokens:(i + 1) * args.tokens + 1] for i in range(args.batch)])
        return {"speed": speed, "losses": losses}[args.what](args, folder, samples.to(args.device))


if __name__ == "__main__":
    sys.exit(main())
