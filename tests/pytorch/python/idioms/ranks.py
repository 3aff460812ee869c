"""Ranks and epochs that differ: batches of other sizes, and epochs that end within an accumulation."""

import torch
from torch import nn

from idioms.harness import Net, idiom


@idiom("a batch without samples on one rank")
def empty_batch(job):
    engine = job.start(job.net())
    for step in range(3):
        x, y = job.batch()
        if step == 1 and job.rank == job.size - 1:
            loss = engine(x[:0]).sum()
        else:
            loss = nn.functional.mse_loss(engine(x), y)
        engine.backward(loss)
        engine.step()
    return job.values(engine)


@idiom("a loss of one rank that has no graph to the weights but through a zero")
def zero_loss(job):
    engine = job.start(job.net())
    for step in range(3):
        loss = job.loss(engine)
        engine.backward(loss * 0 if (step + job.rank) % 3 == 1 else loss)
        engine.step()
    return job.values(engine)


@idiom("a micro-batch that all ranks leave out before its backward")
def left_out_on_all(job):
    engine = job.start(job.net())
    for step in range(4):
        loss = job.loss(engine)
        if step == 1:
            continue
        engine.backward(loss)
        engine.step()
    return job.values(engine)


@idiom("a micro-batch whose gradients all ranks forget", accumulation=2)
def forgotten_on_all(job):
    engine = job.start(job.net())
    for step in range(4):
        loss = job.loss(engine)
        engine.backward(loss)
        if step == 1:
            engine.zero_grad()
            continue
        engine.backward(job.loss(engine))
        engine.step()
        engine.step()
    return job.values(engine)


@idiom("an epoch that ends within an accumulation: the rest goes into the next epoch's step", accumulation=4)
def epoch_within_accumulation(job):
    engine = job.start(job.net())
    for _ in range(2):
        for _ in range(6):
            engine.backward(job.loss(engine))
            engine.step()
        job.evaluate(engine)
        engine.train()
    assert engine.global_steps == 3, engine.global_steps
    return job.values(engine)


@idiom("an epoch that ends within an accumulation: a step at its last batch", accumulation=4)
def epoch_with_boundary(job):
    engine = job.start(job.net())
    for _ in range(2):
        for batch in range(6):
            engine.backward(job.loss(engine))
            engine.set_gradient_accumulation_boundary(batch in (3, 5))
            engine.step()
        job.evaluate(engine)
        engine.train()
    assert engine.global_steps == 4, engine.global_steps
    return job.values(engine)


@idiom("a loop that ends within an accumulation, and a save", accumulation=4)
def ends_within_accumulation(job):
    engine = job.start(job.net())
    for _ in range(6):
        engine.backward(job.loss(engine))
        engine.step()
    if not job.plain:
        engine.save_checkpoint(job.folder)
    return job.values(engine)


@idiom("a run that goes on from a save within an accumulation: that step begins anew", accumulation=4, against_torch=False)
def resumed_within_accumulation(job):
    engine = job.start(job.net())
    for _ in range(7):
        engine.backward(job.loss(engine))
        engine.step()
    engine.save_checkpoint(job.folder)
    again = job.start(job.net(seed=4))
    again.load_checkpoint(job.folder)
    assert again.digest() == engine.digest() and again.global_steps == 1
    steps = 0
    while again.global_steps == 1:
        again.backward(job.loss(again))
        again.step()
        steps += 1
    assert steps in (1, 4), steps
    return {"steps": steps, **job.values(again)}


@idiom("evaluation batches in other numbers on each rank")
def uneven_evaluation(job):
    engine = job.start(job.net())
    for step in range(2):
        job.micro_steps(engine)
        for _ in range(1 + (job.rank + step) % 3):
            job.evaluate(engine)
        engine.train()
    return job.values(engine)


@idiom("random draws of each rank's own: dropout with a seed for each rank")
def dropout(job):
    class Dropping(type(job.net())):
        def forward(self, x):
            return super().forward(nn.functional.dropout(x, 0.3, self.training))

    engine = job.start(job.net(kind=Dropping))
    torch.manual_seed(50 + job.rank)
    job.micro_steps(engine, 3)
    return job.values(engine)


class Skipping(Net):
    """Its last blocks are optional."""

    def forward(self, x, blocks=3):
        x = self.inp(x)
        for block in self.blocks[:blocks]:
            x = block(x)
        return self.head(x)


@idiom("passes whose last units one rank does not use, and an evaluation before their backward", least_ranks=2)
def skips_last_units(job):
    engine = job.start(job.net(kind=Skipping))
    for step in range(4):
        x, y = job.batch()
        blocks = 1 if (step + job.rank) % 3 == 1 else 3
        prediction = engine(x, blocks)
        if step % 2:
            engine.train(False)
            engine.train(True)
        else:
            with torch.no_grad():
                engine(x, 4 - blocks)
        engine.backward(nn.functional.mse_loss(prediction, y))
        engine.step()
    return job.values(engine)
