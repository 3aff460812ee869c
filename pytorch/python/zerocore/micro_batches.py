"""The micro-batches of an engine's steps, numbered over all ranks, and their random numbers."""

import contextlib
import dataclasses
import hashlib
import weakref

import torch

from . import _native


def hash_of(*values):
    """Returns a number from 0 to 2^63 - 1 that depends on these values alone."""
    digest = hashlib.blake2b(" ".join(map(str, values)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclasses.dataclass(frozen=True)
class Share:
    """A rank's part of each step: of `count` micro-batches with `size` samples each, those with the numbers
    rank, rank + ranks, rank + 2 ranks and so on; not those that it repeats for zero_core.recompute_every."""

    size: int
    count: int
    rank: int
    ranks: int

    @property
    def own(self):
        """The number of micro-batches of this rank."""
        return len(range(self.rank, self.count, self.ranks))

    @property
    def samples(self):
        """The number of samples of a step, over all ranks."""
        return self.size * self.count

    def number(self, index):
        """Returns the number, among those of all ranks, of this rank's micro-batch `index`."""
        return index * self.ranks + self.rank


class MicroBatches:
    """Counts the micro-batches of an engine. `seeds_passes`: whether each training pass draws from torch's generators
    as seed() has seeded them, so that its dropout masks do not depend on the number of ranks."""

    def __init__(self, engine, job, settings):
        size, count = engine.native.batch()
        self.share = Share(size, count, job.data_rank, job.data_size)
        self.rank_independent = self.seeds_passes = settings.rank_independent
        self._engine = weakref.ref(engine)
        self._seed = settings.seed
        self._recompute_every = settings.recompute_every
        self._ended = 0  # calls of engine.step() in this step, with rank_independent
        self._drawn = None  # which micro-batch had the newest pass, and the generators' states after it

    @property
    def _native(self):
        return self._engine().native

    @property
    def steps_done(self):
        """The number of steps that the engine has made, in earlier jobs too."""
        return self._native.step_count()

    @property
    def index(self):
        """The number of this rank's micro-batches in this step before the one whose backward comes next."""
        return self._native.begun() - self._native.is_before_backward()

    def numbers(self, step):
        """Returns the numbers, among those of all ranks, of this rank's micro-batches in a step, counted from 0: its own,
        and then those that it repeats (zero_core.recompute_every)."""
        return self._native.micro_batches(step)

    @property
    def count(self):
        """The number of micro-batches of this rank in the current step, with those that it repeats."""
        return len(self.numbers(self.steps_done))

    def count_in(self, first, steps):
        """Returns the number of micro-batches of this rank in this many steps from step `first` on, counted from 0."""
        every, own = self._recompute_every, self.share.own
        if every == 0:
            return steps * own
        repeated = len(self.numbers(every - 1)) - own
        return steps * own + ((first + steps) // every - first // every) * repeated

    def seed(self):
        """Returns the seed of the micro-batch whose backward comes next."""
        numbers, index = self.numbers(self.steps_done), self.index
        return hash_of(self._seed, self.steps_done, numbers[index] if index < len(numbers) else self.share.number(index))

    @contextlib.contextmanager
    def own_random_numbers(self, device):
        """Wraps a training pass. Afterwards torch's generators are as they were before. A second pass of the same
        micro-batch continues the first one's numbers."""
        if not self.seeds_passes:
            yield
            return
        before, now = _states(device), (self.steps_done, self._native.drops(), self.index)
        if self._drawn is not None and self._drawn[0] == now:
            _restore(self._drawn[1], device)
        else:
            torch.manual_seed(self.seed())
        try:
            yield
        finally:
            self._drawn = now, _states(device)
            _restore(before, device)

    # With rank_independent: a step has a known number of micro-batches of each rank.

    def is_last(self):
        """Returns whether the micro-batch that engine.step() ends next is this rank's last one of the step."""
        return max(self._ended + 1, self._native.begun()) == self.count

    def end_one(self, boundary):
        """Called by engine.step(), with the program's own statement of whether a step ends here, or None. Returns
        whether it does."""
        begun = self._native.begun()
        if begun <= self._ended:
            self._ended = begun  # gradients were dropped meanwhile, or no pass came
            raise _native.UsageError("engine.step: no forward and backward pass came since it was called last; with "
                                     "zero_core.rank_independent each micro-batch has one of each")
        count = self.count
        last = begun == count
        if boundary is not None and boundary != last:
            does = "ends a step" if boundary else "does not end the step"
            raise _native.UsageError(
                f"engine.step: the script {does} at micro-batch {begun} of the {count} that rank {self.share.rank} "
                "has; with zero_core.rank_independent that number follows from the number of ranks: accumulate over "
                f"engine.gradient_accumulation_steps(), {count} here")
        self._ended = 0 if last else begun
        return last

    def note_pass(self):
        """Called before each training pass."""
        if self._native.begun() == 0:
            self._ended = 0


def _states(device):
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _restore(states, device):
    torch.set_rng_state(states[0])
    if states[1] is not None:
        torch.cuda.set_rng_state(states[1], device)
