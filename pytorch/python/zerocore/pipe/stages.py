"""The base of models in stages: their units in order, and how each runs."""

import dataclasses

from torch import nn

from .. import _native, ending
from ..ranks import ranks


@dataclasses.dataclass
class Unit:
    """Layers that are gathered and run together. `owns` and `uses`: names of parameters; a parameter belongs to the first
    unit that has it."""

    name: str
    owns: list
    uses: list


class Stages(nn.Module):
    """A model cut into stages. Its parameters are those of this rank's stage.

    `units`: of all stages, equal on all ranks. `first_units`: the first one of each run of units, of which stage s has
    number s, and with `chunks` above 1 every stage_count-th after it. `tensors`: {name: (parameter, its other names)} of this
    stage. `reads_batches`: whether every stage reads batches, not the first and last alone."""

    reads_batches = False

    def __init__(self):
        super().__init__()
        self.units, self.first_units, self.tensors = [], [0], {}
        self.stage, self.chunks = 0, 1

    @property
    def stage_count(self):
        """The number of stages."""
        return len(self.first_units) // self.chunks

    @property
    def own_units(self):
        """The numbers of this stage's units."""
        runs = list(zip(self.first_units, [*self.first_units[1:], len(self.units)]))
        return [unit for begin, end in runs[self.stage::self.stage_count] for unit in range(begin, end)]

    def run(self, unit, inputs, batch):
        """Returns the unit's outputs, a tensor or a tuple: of the last one without a loss_fn the loss."""
        raise NotImplementedError

    def loss_of(self, outputs, batch):
        """Returns the loss of a micro-batch from the last unit's outputs."""
        raise NotImplementedError

    def logits_of(self, outputs):
        """Returns what eval_batch() gives the program of the last unit's outputs."""
        return outputs

    def prepared(self, batch, to_device):
        """Returns a micro-batch as run() and loss_of() are given it."""
        return batch

    def labels_of(self, batch):
        """Returns the labels of a micro-batch, a tensor or a tuple, or None."""
        return batch[1] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None

    def of_other_stages(self):
        """Returns the parameters of other stages that the program may refer to."""
        return ()

    def forward(self, *args, **kwargs):
        raise _native.UsageError("a model in stages is run by engine.train_batch() and eval_batch() alone: no rank has all of "
                                 "its layers")


def chunks_of(stages, chunks):
    """Returns the runs of units that each of `stages` stages has; a single stage has one."""
    if not isinstance(chunks, int) or chunks < 1:
        raise _native.UsageError(f"chunks is {chunks!r}; expected the number of runs of units that each stage has, 1 or more")
    return chunks if stages > 1 else 1


def cut_ranks(stages, what):
    """Gives `stages` equal parts of the ranks a stage each, and returns this rank's. Collective."""
    job = ranks()
    ending.end_collected(job)
    if job.gpu >= 0:
        raise _native.UsageError(f"{what} is {stages}: the stages of a pipeline are CPU ranks so far: train without a pipeline, or set "
                                 "DS_ACCELERATOR=cpu")
    if not isinstance(stages, int) or stages < 1 or job.size % stages:
        raise _native.UsageError(f"{what} is {stages!r}, which does not divide the {job.size} ranks of this job: each stage "
                                 "has as many")
    job.cut(stages)
    return job.stage
