"""GPT-2 and Llama trained by train_gpt and by PyTorch on one GPU, in one run.

  gpu_training.py speed TRAIN_GPT [--model gpt2|gpt2-xl|llama-1.2b] [--batch B] [--fsdp2] [--repeat R]
  gpu_training.py losses TRAIN_GPT [--model ...] [--steps 50]

speed: tokens per second, in bf16 with fp32 master weights, ours and PyTorch's in turns: torch.compile, autocast, fused
AdamW, attention by cuDNN, clipping; --fsdp2: fully_shard at world size 1 too. losses: how far each step's loss is from
PyTorch's in fp32, ours in bf16 and PyTorch's own bf16 with fp32 master weights, from the same start values and tokens;
ours may be 1.5 times as far. Without torch: one line, and 77. --device cpu with the models tiny-gpt2 and tiny-llama tries the script itself.
"""

import argparse
import contextlib
import copy
import json
import os
import pathlib
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

try:
    import torch
    from torch import nn

    import gpu_models
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ADAMW = {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
CLIP = 1.0
BATCH = {"gpt2": 64, "gpt2-xl": 16, "llama-1.2b": 8}
FARTHER = 1.5  # than PyTorch's bf16
UNTOLD = 2.0**-14


def ours_config(args, folder, bf16):
    config = {"train_micro_batch_size_per_gpu": args.batch, "gradient_clipping": CLIP, "bf16": {"enabled": bf16},
              "optimizer": {"type": "AdamW", "params": {**ADAMW, "betas": list(ADAMW["betas"])}}}
    file = folder / "ds_config.json"
    file.write_text(json.dumps(config))
    return file


def ours(args, folder, steps, bf16=True):
    """The records of the steps."""
    log = folder / "ours.json"
    command = [args.program, "--device", args.device, "--deepspeed-config", ours_config(args, folder, bf16), "--model",
               folder / "config.json", "--init", folder, "--data", folder / "tokens.bin", "--token-dtype", "uint32",
               "--sequence-length", args.tokens, "--steps", steps, "--log-json", log]
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: code {run.returncode}\n{run.stdout}{run.stderr}")
    for line in run.stdout.splitlines():
        if line.startswith("kernels"):
            print(line)
    return [record for record in map(json.loads, log.read_text().splitlines()) if "step" in record]


def groups(model):
    """Weight decay as train_gpt has it: on matrices alone."""
    parameters = gpu_models.own_parameters(model)
    return [{"params": [p for _, p in parameters if p.dim() > 1]},
            {"params": [p for _, p in parameters if p.dim() == 1], "weight_decay": 0.0}]


def with_cudnn(device):
    """Attention by cuDNN, by FlashAttention where it refuses."""
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
        self.model = gpu_models.make(gpu_models.CONFIGS[args.model], args.device)
        if fsdp2:
            shard(self.model)
        self.optimizer = torch.optim.AdamW(groups(self.model), fused=True, **ADAMW)
        self.forward = torch.compile(self.model) if compiled else self.model

    def step(self, text):
        with torch.autocast(self.args.device, torch.bfloat16, enabled=self.cast), with_cudnn(self.args.device):
            loss = self.forward(text[:, :-1], text[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
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
    taken = {name: [] for name in ("ours", *peers)}
    made = {}
    for _ in range(args.repeat):
        records = ours(args, folder, args.warmup + args.steps)
        taken["ours"].append(statistics.median(r["step_ms"] for r in records[args.warmup:]) / 1e3)
        for name, options in peers.items():
            made[name] = made.get(name) or Peer(args, **options)
            taken[name].append(seconds_of_peer(args, made[name], text))
        if args.device == "cuda":  # ours needs the memory
            torch.cuda.empty_cache()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    for name, seconds in taken.items():
        best = statistics.median(seconds)
        print(f"{args.model}, {args.batch} x {args.tokens}, {name}: {tokens / best:.0f} tokens/s "
              f"({1e3 * best:.1f} ms), ours {best / statistics.median(taken['ours']):.3f} times as fast")


def losses(args, folder, text):
    exact = peer_losses(args, text, bf16=False)
    theirs = peer_losses(args, text, bf16=True)
    mine = [record["loss"] for record in ours(args, folder, args.steps)]
    far = lambda found: [abs(a - b) for a, b in zip(found, exact, strict=True)]  # noqa: E731
    # Single steps come near by chance: the largest distance so far is compared, from a part of the loss on that
    # bf16 cannot tell from none.
    worst = 0.0
    for step, (own, their) in enumerate(zip(map(max_so_far(), far(mine)), map(max_so_far(), far(theirs))), start=1):
        worst = max(worst, own / max(their, exact[step - 1] * UNTOLD))
        if step in (1, 2, 5) or step % 10 == 0:
            print(f"step {step}: fp32 {exact[step - 1]:.6f}, ours off by up to {own:.2e}, PyTorch's bf16 by {their:.2e}")
    print(f"{args.model}: ours is at most {worst:.2f} times as far from PyTorch's fp32 as its own bf16 is")
    return 0 if worst <= FARTHER else 1


def max_so_far():
    largest = 0.0

    def next_of(value):
        nonlocal largest
        largest = max(largest, value)
        return largest

    return next_of


def peer_losses(args, text, bf16):
    """Of a model in fp32, or of one in bf16 with fp32 master weights, as ours and DeepSpeed's are."""
    torch.backends.cuda.matmul.allow_tf32 = False
    masters = gpu_models.make(gpu_models.CONFIGS[args.model], args.device)
    model = copy.deepcopy(masters).bfloat16() if bf16 else masters
    optimizer = torch.optim.AdamW(groups(masters), fused=True, **ADAMW)
    found = []
    for _ in range(args.steps):
        loss = model(text[:, :-1], text[:, 1:])
        loss.backward()
        found.append(loss.item())
        for master, parameter in zip(masters.parameters(), model.parameters(), strict=True):
            master.grad = parameter.grad.float()
        nn.utils.clip_grad_norm_(masters.parameters(), CLIP)
        optimizer.step()
        model.zero_grad(set_to_none=True)
        with torch.no_grad():
            for master, parameter in zip(masters.parameters(), model.parameters(), strict=True):
                parameter.copy_(master)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "losses"))
    parser.add_argument("program")
    parser.add_argument("--model", choices=gpu_models.CONFIGS, default="gpt2")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--fsdp2", action="store_true")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        print("skipped: PyTorch sees no GPU")
        return 77
    config = gpu_models.CONFIGS[args.model]
    args.tokens = config.get("n_positions", config.get("max_position_embeddings"))
    args.batch = args.batch or (BATCH.get(args.model, 4) if args.what == "speed" else 4)
    args.steps = args.steps or (20 if args.what == "speed" else 50)
    # One batch is the whole data: in each epoch its samples come in another order, which no loss depends on.
    text = torch.randint(config["vocab_size"], (args.batch * args.tokens + 1,),
                         generator=torch.Generator().manual_seed(7))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "tokens.bin").write_bytes(struct.pack(f"<{len(text)}I", *text.tolist()))
        model = gpu_models.make(config, args.device)
        gpu_models.save(model, config, folder)
        del model
        samples = torch.stack([text[i * args.tokens:(i + 1) * args.tokens + 1] for i in range(args.batch)])
        return {"speed": speed, "losses": losses}[args.what](args, folder, samples.to(args.device))


if __name__ == "__main__":
    sys.exit(main())
