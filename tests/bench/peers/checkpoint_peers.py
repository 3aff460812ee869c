"""One rank of torch.save or DeepSpeed, saving as much state as bench_checkpoints: for ../checkpoints.py."""

import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed

UNITS, WIDTH = 8, 1000


class Model(torch.nn.Module):
    """A model of units with one matrix each."""

    def __init__(self, elements):
        super().__init__()
        self.units = torch.nn.ModuleList(
            torch.nn.Linear(WIDTH, elements // UNITS // WIDTH, bias=False) for _ in range(UNITS))

    def forward(self, x):
        return sum(unit(x).sum() for unit in self.units)


def timed(save):
    torch.distributed.barrier()
    start = time.monotonic()
    save()
    torch.distributed.barrier()
    return time.monotonic() - start


def plain(folder, elements):
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    count = elements // UNITS // ranks
    state = {f"{kind}.{unit}": torch.full((count,), 1.5) for kind in ("weight", "exp_avg", "exp_avg_sq")
             for unit in range(UNITS)}

    def save():
        with open(folder / f"{rank}.pt", "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
    return timed(save)


def deepspeed(folder, elements):
    import deepspeed
    model = Model(elements)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}})
    engine.backward(engine(torch.ones(1, WIDTH)))
    engine.step()
    return timed(lambda: engine.save_checkpoint(str(folder), tag="t"))


def main():
    kind, folder, elements = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]) * 1_000_000
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    if kind == "deepspeed":
        import deepspeed as package
        package.init_distributed(dist_backend="gloo")
        seconds = deepspeed(folder, elements)
    else:
        torch.distributed.init_process_group("gloo")
        seconds = plain(folder, elements)
    print(json.dumps({"seconds": seconds}), flush=True)


main()
