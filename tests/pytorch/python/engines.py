"""One rank: a student, a frozen teacher and a frozen judge in three engines, `engines.py`. At every stage the losses are
those of one plain process, and the student's weights have equal bits, in whatever order the engines run."""

import torch
from torch import nn

import zerocore

STEPS, BATCH = 4, 6


def net(seed):
    torch.manual_seed(seed)
    blocks = [nn.Sequential(nn.Linear(24, 40), nn.Tanh(), nn.Linear(40, 24)) for _ in range(3)]
    return nn.Sequential(nn.Embedding(40, 24), *blocks, nn.Linear(24, 40))


def batch(step):
    return torch.randint(0, 40, (BATCH, 7), generator=torch.Generator().manual_seed(step))


def loss_of(student, teacher, judge):
    """Distillation towards the teacher, weighted by the judge."""
    distance = nn.functional.kl_div(student.log_softmax(-1), teacher.softmax(-1), reduction="none").sum(-1)
    return (distance * judge.amax(-1).sigmoid()).mean()


def plain():
    student, teacher, judge = net(0), net(1), net(2)
    optimizer, losses = torch.optim.AdamW(student.parameters(), lr=1e-2), []
    for step in range(STEPS):
        with torch.no_grad():
            aims = teacher(batch(step)), judge(batch(step))
        loss = loss_of(student(batch(step)), *aims)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def engines_of(stage):
    config = {"train_micro_batch_size_per_gpu": BATCH // zerocore.ranks().size, "zero_optimization": {"stage": stage},
              "gradient_clipping": 0, "steps_per_print": 0}
    student = net(0)
    engine, *_ = zerocore.initialize(model=student, config=config, optimizer=torch.optim.AdamW(student.parameters(), lr=1e-2))
    frozen = [zerocore.initialize(model=net(seed).requires_grad_(False), config=config)[0] for seed in (1, 2)]
    return engine, *frozen


def run(stage, expected):
    """Returns the digest of the student's weights and states."""
    ranks = zerocore.ranks()
    student, teacher, judge = engines_of(stage)
    own = BATCH // ranks.size
    losses = []
    for step in range(STEPS):
        tokens = batch(step)[ranks.rank * own:(ranks.rank + 1) * own]
        order = (teacher, judge) if step % 2 else (judge, teacher)
        with torch.no_grad():
            aims = {engine: engine(tokens) for engine in order}
        output = student(tokens)
        with torch.no_grad():  # between the student's forward and its backward
            assert torch.equal(aims[teacher], teacher(tokens))
        loss = loss_of(output, aims[teacher], aims[judge])
        student.backward(loss)
        student.step()
        losses.append(ranks.sum(loss.item()) / ranks.size)
    assert max(abs(a - b) for a, b in zip(losses, expected)) < 1e-6, (stage, losses, expected)
    digest = student.digest()
    for engine in (judge, student, teacher):
        engine.destroy()
    return digest


def main():
    expected = plain()
    assert len({run(stage, expected) for stage in (0, 1, 2, 3)}) == 1
    if zerocore.ranks().rank == 0:
        print(f"three engines on {zerocore.ranks().size} ranks")


main()
