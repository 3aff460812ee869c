"""The loader of a rank's share of a dataset."""

import torch

from . import _native
from .global_sampler import GlobalSampler


class RepeatingLoader:
    """Restarts a loader whenever it ends."""

    def __init__(self, loader):
        self.loader = loader
        self.data_iter = iter(loader)

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return next(self.data_iter)
        except StopIteration:
            self.data_iter = iter(self.loader)
            return next(self.data_iter)


def loader_of(engine, dataset, batch_size, route, pin_memory, data_sampler, collate_fn, workers, settings):
    """Returns the DataLoader of engine.deepspeed_io(), with its arguments and the engine's settings."""
    if not hasattr(dataset, "__getitem__") and not isinstance(dataset, torch.utils.data.IterableDataset):
        raise ValueError(f"engine.deepspeed_io: training data is a {type(dataset).__name__}; expected a dataset of torch, or one "
                         "with len() and indices")
    micro, drops = engine.train_micro_batch_size_per_gpu(), settings.drops_last
    if engine.micro_batches.rank_independent:
        _refuse_other_shares(dataset, batch_size, micro)
        data_sampler, drops = data_sampler or GlobalSampler(dataset, settings.seed, engine), True
    elif data_sampler is None and isinstance(dataset, torch.utils.data.IterableDataset):
        _tell_of_whole(engine, dataset)
    elif data_sampler is None:
        data_sampler = torch.utils.data.DistributedSampler(
            dataset, num_replicas=engine.dp_world_size, rank=engine.get_data_parallel_rank(), shuffle=route == "train")
    return torch.utils.data.DataLoader(dataset, batch_size=batch_size or micro, sampler=data_sampler, collate_fn=collate_fn,
                                       num_workers=workers or 0, drop_last=drops,
                                       pin_memory=pin_memory and engine.device.type == "cuda")


def _tell_of_whole(engine, dataset):
    if engine.dp_world_size > 1 and engine.global_rank == 0:
        print(f"zero: engine.deepspeed_io: each rank reads all that its {type(dataset).__name__} yields: let it yield other "
              "samples by engine.get_data_parallel_rank(), unless it does", flush=True)


def _refuse_other_shares(dataset, batch_size, micro):
    if isinstance(dataset, torch.utils.data.IterableDataset):
        raise _native.UsageError(f"engine.deepspeed_io: a {type(dataset).__name__} has no numbered samples, which "
                                 "zero_core.rank_independent needs: give a dataset with len() and indices")
    if batch_size not in (None, micro):
        raise _native.UsageError(f"engine.deepspeed_io: batch_size is {batch_size}, and with zero_core.rank_independent a "
                                 f"micro-batch has {micro} samples (train_micro_batch_size_per_gpu): leave it out")
