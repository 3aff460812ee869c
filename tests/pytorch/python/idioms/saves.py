"""Engines without an optimizer, and calls that only one rank makes."""

import torch

import zerocore
from idioms.harness import Net, idiom


@idiom("a teacher without an optimizer, frozen or not, between the student's forward and backward")
def teacher(job):
    losses = []
    teachers = []
    for frozen in (True, False):
        net = job.net(seed=3)
        if frozen:
            net.requires_grad_(False)
        if job.plain:
            teachers.append(net)
            continue
        engine, optimizer, _, scheduler = zerocore.initialize(model=net, config=job.config())
        job.engines.append(engine)
        assert optimizer is None and scheduler is None
        assert not any(word in engine.memory_table() for word in ("gradient", "optimizer_state")), engine.memory_table()
        teachers.append(engine)
    student = job.start(job.net())
    for step in range(3):
        x, _ = job.batch()
        prediction = student(x)
        with torch.no_grad():
            target = teachers[step % 2](x)
        loss = (prediction - target).pow(2).mean() + (prediction - teachers[0](x).detach()).abs().mean()
        student.backward(loss)
        student.step()
        losses.append(loss.item())
    if not job.plain:
        for call in (lambda: teachers[0].step(), lambda: teachers[0].backward(loss)):
            try:
                call()
            except zerocore.UsageError as error:
                assert "Net has no optimizer" in str(error), error
            else:
                raise AssertionError("an engine without an optimizer trained")
    return {"losses": losses, **job.values(student)}


@idiom("attributes that neither the engine nor the model has", against_torch=False)
def missing_attributes(job):
    engine = job.start(job.net())
    try:
        engine.monitor_of_nothing
    except AttributeError as error:
        assert "zerocore's engine" in str(error) and "Net" in str(error), error
    else:
        raise AssertionError("it is there")
    assert engine.head is engine.module.head and isinstance(engine.module, Net)
    return {"found": 1}
