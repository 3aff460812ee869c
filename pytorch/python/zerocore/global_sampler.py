"""An order of samples that does not depend on the number of ranks."""

import weakref

import torch

from . import _native
from .micro_batches import hash_of


class GlobalSampler(torch.utils.data.Sampler):
    """Yields this rank's samples, shuffled; for a DataLoader with the engine's micro-batch size. Sample n of the
    training run is a function of (seed, n) alone: with the same train_batch_size, each step has the same samples at any
    number of ranks, in micro-batches with the same numbers if the mode is zero_core.rank_independent. The micro-batches
    that ranks repeat for zero_core.recompute_every are among them.

    An epoch has as many whole steps as the dataset has samples for; the rest is left out, another one in each epoch. An
    iterator begins at the engine's next micro-batch, so a run that load_checkpoint() resumes goes on in the middle of its
    epoch, and ends with the epoch. `engine`: needed if the process has several engines with an optimizer."""

    def __init__(self, dataset, seed=1234, engine=None):
        self._length = len(dataset)
        self._seed = seed
        self._epoch = None
        self._engine = weakref.ref(engine) if engine is not None else None

    def set_epoch(self, epoch):
        """Lets the next iterators begin with this epoch, or in the middle of it if the engine is there."""
        self._epoch = epoch

    def __len__(self):
        """Returns the number of this rank's samples in a whole epoch: the next one, with those that it repeats."""
        micro_batches = self._micro_batches()
        share = micro_batches.share
        steps = self._steps(share)
        first = (micro_batches.steps_done // steps if self._epoch is None else self._epoch) * steps
        return micro_batches.count_in(first, steps) * share.size

    def __iter__(self):
        micro_batches = self._micro_batches()
        share = micro_batches.share
        steps = self._steps(share)
        epoch, step = divmod(micro_batches.steps_done, steps)
        index = micro_batches.index
        if self._epoch is not None and self._epoch != epoch:
            epoch, step, index = self._epoch, 0, 0
        order = self._order(epoch)
        for step in range(step, steps):
            for number in micro_batches.numbers(epoch * steps + step)[index:]:
                first = step * share.samples + number * share.size
                yield from order[first:first + share.size]
            index = 0

    def _order(self, epoch):
        generator = torch.Generator().manual_seed(hash_of(self._seed, epoch))
        return torch.randperm(self._length, generator=generator).tolist()

    def _steps(self, share):
        steps = self._length // share.samples
        if steps == 0:
            raise _native.UsageError(f"GlobalSampler: the dataset has {self._length} samples, and one step needs "
                                     f"{share.samples} (train_batch_size): give more samples, or a smaller batch")
        return steps

    def _micro_batches(self):
        from .ranks import engines  # it imports the engine's modules

        if self._engine is not None:
            found = [engine for engine in engines() if engine is self._engine()]
        else:
            found = [engine for engine in engines() if engine.optimizer is not None]
        if len(found) != 1:
            raise _native.UsageError(f"GlobalSampler: there are {len(found)} engines with an optimizer: call "
                                     "zerocore.initialize() before the loader is used, or name the engine by engine=")
        return found[0].micro_batches
