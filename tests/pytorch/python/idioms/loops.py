"""The usual loop; all other idioms differ from it."""

import torch

from idioms.harness import idiom


@idiom("the usual loop")
def usual_loop(job):
    engine = job.start(job.net())
    losses = job.micro_steps(engine, 3)
    return {"losses": losses, **job.values(engine)}


@idiom("accumulation over micro-batches", accumulation=3)
def accumulation(job):
    engine = job.start(job.net(), gradient_clipping=0.1)
    job.micro_steps(engine, 3)
    return job.values(engine)


@idiom("two losses of two forward passes, one backward")
def two_forwards(job):
    engine = job.start(job.net())
    for _ in range(3):
        engine.backward(job.loss(engine) + job.loss(engine))
        engine.step()
    return job.values(engine)


@idiom("a momentum of SGD")
def momentum(job):
    net = job.net()
    engine = job.start(net, torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9))
    job.micro_steps(engine, 3)
    return job.values(engine)
