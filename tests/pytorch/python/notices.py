"""One rank: every notice of the package that a program can cause, `notices.py FOLDER CASE...`, under
zerocore.as_deepspeed."""

import math
import sys
import warnings

import deepspeed
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import IterableDataset


def config(**more):
    return {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}, "steps_per_print": 0, **more}


ADAMW = {"type": "AdamW", "params": {"lr": 1e-3}}
WARMUP = {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}


def start(net=None, **arguments):
    net = net or nn.Linear(4, 4)
    return deepspeed.initialize(model=net, model_parameters=net.parameters(), **arguments)[0]


def step(engine):
    engine.backward(engine(torch.ones(2, 4)).pow(2).mean())
    engine.step()


def codes():
    net = nn.Linear(4, 4)
    net.coded = nn.Parameter(torch.tensor([1.0, math.nan]), requires_grad=False)
    start(net, config=config(optimizer=ADAMW))


def grace():
    start(config=config(optimizer=ADAMW, zero_core={"preempt_grace_s": 60}))


def seed():
    start(config=config(optimizer=ADAMW, seed=7))


def key_with_dots():
    start(config={**config(optimizer=ADAMW), "zero_optimization.reduce_bucket_size": 5})


def two_schedulers():
    net = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(net.parameters())
    start(net, optimizer=optimizer, lr_scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 1),
          config=config(scheduler=WARMUP, gradient_clipping=1.0))


def two_optimizers():
    net = nn.Linear(4, 4)
    start(net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), config=config(optimizer=ADAMW, gradient_clipping=1.0))


def left_out():
    net = nn.Linear(4, 4)
    start(net, optimizer=torch.optim.SGD([net.weight], lr=0.1), config=config(gradient_clipping=1.0))


def frozen_state():
    net = nn.Linear(4, 4)
    net.bias.requires_grad_(False)
    engine = start(net, config=config(optimizer=ADAMW))
    for _ in range(2):
        deepspeed.utils.safe_set_full_optimizer_state(engine.module.bias, torch.ones(4), "exp_avg")


def unscaled():
    engine = start(config=config(optimizer=ADAMW, fp16={"enabled": True}))
    for _ in range(2):
        engine.module(torch.ones(2, 4).half()).float().pow(2).mean().backward()
        engine.step()


def unknown_warmup():
    deepspeed.runtime.lr_schedules.WarmupLR(torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1), warmup_type="none such")


def no_betas():
    deepspeed.runtime.lr_schedules.OneCycle(torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1), 0.1, 0.2)


def bytes_held():
    net = nn.Linear(4, 4)
    net.codes = nn.Parameter(torch.arange(4, dtype=torch.int16), requires_grad=False)
    start(net, config=config(optimizer=ADAMW))


def forgotten():
    engine = start(config=config(optimizer=ADAMW, gradient_accumulation_steps=2))
    for _ in range(3):
        engine.backward(engine(torch.ones(2, 4)).pow(2).mean())
        engine.zero_grad()


def late_buffer():
    engine = start(config=config(optimizer=ADAMW))
    engine.module.register_buffer("count", torch.ones(1))
    for tag in "ab":
        engine.save_checkpoint(sys.argv[1], tag=tag)


def warnings_of(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    print(*(warning.message for warning in caught))


def groups_alone():
    warnings_of(start(config=config(optimizer=ADAMW)).optimizer.state_dict)


def hooks_of_all():
    """The warning comes once."""
    engine = start(config=config(optimizer=ADAMW))
    handle = register_optimizer_step_post_hook(lambda *_: None)
    warnings_of(lambda: (step(engine), step(engine)))
    handle.remove()


def divided():
    """The notice comes once, for whichever operation divides."""
    engine = start(config=config(optimizer=ADAMW, gradient_accumulation_steps=4))
    for divide in (lambda loss: loss / 4, lambda loss: loss * 0.25):
        engine.backward(divide(engine(torch.ones(2, 4)).pow(2).mean()))
        engine.step()


def divided_by_hand():
    """The model returns the loss, and the script calls its backward()."""
    net = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    engine = start(net, config=config(optimizer=ADAMW, gradient_accumulation_steps=2))
    for _ in range(2):
        (engine(torch.ones(1, 4)) / 2).backward()
        engine.step()


def divided_right():
    """Prints nothing: these divide by another number, or say that they divide."""
    engine = start(config=config(optimizer=ADAMW, gradient_accumulation_steps=4))
    loss_of = lambda: engine(torch.ones(2, 4)).pow(2).mean()  # noqa: E731
    engine.backward(loss_of())
    engine.step()
    engine.backward(loss_of() / 4, scale_wrt_gas=False)
    engine.step()
    engine.backward(loss_of() / 8)
    engine.step()


def clips_by_default():
    """The author has not written it, since the optimizer is torch's."""
    net = nn.Linear(4, 4)
    start(net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), config=config())
    net = nn.Linear(4, 4)
    start(net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), config=config(gradient_clipping=1.0))
    start(config=config(optimizer=ADAMW))


def mixed_dtypes():
    """torch's error is followed by the key that helps."""
    class Positions(nn.Linear):
        def __init__(self):
            super().__init__(4, 4)
            self.register_buffer("positions", torch.ones(4))

        def forward(self, x):
            return super().forward(x + self.positions)

    engine = start(Positions(), config=config(optimizer=ADAMW, bf16={"enabled": True}))
    try:
        engine(torch.ones(2, 4, dtype=torch.bfloat16))
    except RuntimeError as error:
        print(error if engine.global_rank == 0 else "")


def progress():
    engine = start(config=config(optimizer=ADAMW, steps_per_print=2, fp16={"enabled": True, "initial_scale_power": 4}))
    for _ in range(2):
        engine.backward(engine(torch.ones(2, 4, dtype=torch.float16)).float().pow(2).mean())
        engine.step()


def by_hand():
    engine = start(config=config(optimizer=ADAMW, steps_per_print=1))
    engine(torch.ones(2, 4)).pow(2).mean().backward()
    engine.step()
    assert math.isnan(engine.last_step.loss), engine.last_step.loss


def other_types():
    """Prints nothing about the type of the config."""
    start(nn.Linear(4, 4).bfloat16(), config=config(optimizer=ADAMW))
    start(nn.Linear(4, 4).bfloat16(), config=config(optimizer=ADAMW, bf16={"enabled": True}))


def nothing_there():
    assert start(config=config(optimizer=ADAMW)).load_checkpoint(f"{sys.argv[1]}/none") == (None, None)


def inside_of_one():
    engine = start(config=config(optimizer=ADAMW))
    engine.save_checkpoint(f"{sys.argv[1]}/inside", tag="one")
    assert engine.load_checkpoint(f"{sys.argv[1]}/inside/one") == (None, None)


def alone_by_tag():
    engine = start(config=config(optimizer=ADAMW))
    engine.save_checkpoint(f"{sys.argv[1]}/alone", tag="one", save_latest=False)
    assert engine.load_checkpoint(f"{sys.argv[1]}/alone") == (None, None)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(4))


def whole_stream():
    assert len(list(start(config=config(optimizer=ADAMW)).deepspeed_io(Stream()))) == 2


def clipping():
    from accelerate import Accelerator, DeepSpeedPlugin
    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=config(gradient_clipping=0.5)))
    net = nn.Linear(4, 4)
    net, _ = accelerator.prepare(net, torch.optim.AdamW(net.parameters()))
    accelerator.backward(net(torch.ones(2, 4)).pow(2).mean())
    for _ in range(2):
        accelerator.clip_grad_norm_(net.parameters(), 0.25)


def no_engine():
    from accelerate import Accelerator
    Accelerator()


for case in sys.argv[2:]:
    globals()[case]()
