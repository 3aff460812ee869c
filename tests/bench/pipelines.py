"""Times a PyTorch model in stages: zerocore.pipe at ZeRO stage 3 against torch's FSDP2 x 1F1B, on CPU ranks.

usage: pipelines.py PYTHON PACKAGE [--memory] [--stages 2] [--ranks 4] [--pairs 3] [--micro-batches 8] [--width 512] [--layers 8]

Both train the same layers with the same micro-batches. Runs come in pairs, the order of which changes; the median step of
each run counts. With --memory the largest growth of a rank's own and shared memory since the start is compared instead:
looking at it takes as much of a core as training.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time

SAMPLES, TOKENS, CLASSES, STEPS = 4, 64, 1000, 6


def resident():
    """Bytes of this process, without pages of files."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as lines:
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))


class Peak:
    """The growth of memory, looked at every few milliseconds."""

    def __init__(self):
        self.first = self.most = resident()
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self):
        while not self._stops.wait(0.005):
            self.most = max(self.most, resident())

    def end(self):
        self._stops.set()
        self._thread.join()
        return self.most - self.first


def layers_of(args):
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(args.width), nn.Linear(args.width, 4 * args.width), nn.Linear(4 * args.width, args.width)

        def forward(self, x):
            return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

    torch.manual_seed(7)
    return [Block() for _ in range(args.layers)] + [nn.Linear(args.width, CLASSES)]


def loss_of(output, target):
    from torch.nn.functional import cross_entropy
    return cross_entropy(output.reshape(-1, CLASSES), target.reshape(-1))


def batch_of(args, data_rank, step):
    import torch
    numbers = torch.Generator().manual_seed(100 * step + data_rank)
    shape = (args.micro_batches * SAMPLES, TOKENS)
    return torch.randn(*shape, args.width, generator=numbers), torch.randint(CLASSES, shape, generator=numbers)


def measured(step, args, data_rank):
    """Returns the median seconds of steps after the first two, or the peak of memory in MiB."""
    peak, times = Peak() if args.memory else None, []
    for index in range(STEPS):
        batch = batch_of(args, data_rank, index)
        begin = time.perf_counter()
        step(*batch)
        times.append(time.perf_counter() - begin)
    return peak.end() / 2**20 if peak else statistics.median(times[2:])


def with_torch(args):
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (args.stages, dist.get_world_size() // args.stages), mesh_dim_names=("pp", "dp"))
    stage, data_rank = mesh["pp"].get_local_rank(), mesh["dp"].get_local_rank()
    layers, each = layers_of(args), args.layers // args.stages
    last = stage + 1 == args.stages
    part = nn.Sequential(*layers[stage * each:None if last else (stage + 1) * each])
    del layers
    for layer in part:
        fully_shard(layer, mesh=mesh["dp"], reshard_after_forward=False)
    fully_shard(part, mesh=mesh["dp"], reshard_after_forward=False)
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-3)
    schedule = Schedule1F1B(PipelineStage(part, stage, args.stages, torch.device("cpu"), group=mesh["pp"].get_group()),
                            n_microbatches=args.micro_batches, loss_fn=loss_of)

    def step(inputs, targets):
        optimizer.zero_grad()
        schedule.step(*((inputs,) if stage == 0 else ()), **({"target": targets, "losses": []} if last else {}))
        optimizer.step()

    return measured(step, args, data_rank)


def with_zerocore(args):
    import zerocore
    from zerocore.pipe import PipelineModule
    net = PipelineModule(layers_of(args), num_stages=args.stages, loss_fn=loss_of, partition_method="uniform")
    engine, *_ = zerocore.initialize(model=net, config={
        "train_micro_batch_size_per_gpu": SAMPLES, "gradient_accumulation_steps": args.micro_batches, "steps_per_print": 1000,
        "zero_optimization": {"stage": 3}, "gradient_clipping": 0.0, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}})

    def step(inputs, targets):
        engine.train_batch(iter(list(zip(inputs.split(SAMPLES), targets.split(SAMPLES)))))

    return measured(step, args, engine.grid.get_data_parallel_rank())


def run(args, how):
    """Returns the largest result of a rank."""
    done = subprocess.run(
        [args.python, "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node", str(args.ranks), __file__, *sys.argv[1:],
         "--rank-of", how], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": args.package, "OMP_NUM_THREADS": "1"})
    results = [json.loads(text) for text in re.findall(r"RESULT ([\d.]+)", done.stdout)]
    if done.returncode or len(results) != args.ranks:
        raise SystemExit(done.stdout + done.stderr)
    return max(results)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("python")
    parser.add_argument("package")
    parser.add_argument("--memory", action="store_true")
    for name, value in (("stages", 2), ("ranks", 4), ("pairs", 3), ("micro-batches", 8), ("width", 512), ("layers", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rank-of", choices=("torch", "zerocore"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank_of:
        result = {"torch": with_torch, "zerocore": with_zerocore}[args.rank_of](args)
        print("RESULT " + json.dumps(result), flush=True)
        return
    for pair in range(args.pairs):
        order = ("torch", "zerocore") if pair % 2 == 0 else ("zerocore", "torch")
        of = {how: run(args, how) for how in order}
        unit = "MiB" if args.memory else "s"
        print(f"torch {of['torch']:.3f} {unit}, zerocore {of['zerocore']:.3f} {unit}, torch / zerocore "
              f"{of['torch'] / of['zerocore']:.2f}", flush=True)


if __name__ == "__main__":
    main()
