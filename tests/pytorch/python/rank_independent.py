"""Trains GPT-2 of transformers with dropout under zero_core.rank_independent: `rank_independent.py CELL...`, run by
zerocore.as_deepspeed on any number of ranks. A cell is KIND,STAGE,DTYPE,LAST STEP,FOLDER; it continues from the folder's
checkpoint if there is one. Rank 0 prints the losses and the digest of each cell, and the errors of `refused`."""

import json
import os
import sys

import torch
import transformers

import models
import zerocore

MICRO_BATCHES = 6
SIZE = 2  # samples of a micro-batch
OTHERS = ("tied", "shared", "adversary", "dropped", "experts", "resnet", "gpt2-recomputed-reentrant", "t5")


class Sequences(torch.utils.data.Dataset):
    """The last step of an epoch leaves three samples over. Some labels are masked, so micro-batches differ in their
    number of labels."""

    def __init__(self, count=3 * MICRO_BATCHES * SIZE + 3):
        generator = torch.Generator().manual_seed(5)
        self._rows = torch.randint(0, 67, (count, 10), generator=generator)

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, index):
        labels = self._rows[index].clone()
        labels[:index % 5] = -100
        return {"input_ids": self._rows[index], "labels": labels}


def make_model():
    torch.manual_seed(3)  # the dropout of this config is 0.1 everywhere
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=67, n_positions=16, n_embd=24, n_layer=3, n_head=3, bos_token_id=0, eos_token_id=0)).train()


def config_of(stage, dtype, **more):
    return {"train_batch_size": MICRO_BATCHES * SIZE, "train_micro_batch_size_per_gpu": SIZE, "gradient_clipping": 0.5,
            "zero_optimization": {"stage": int(stage)}, "zero_core": {"rank_independent": True}, "seed": 17,
            **({dtype: {"enabled": True}} if dtype != "fp32" else {}), **more}


def make_engine(stage, dtype="fp32", group=1, every=0):
    return zerocore.initialize(model=make_model(), training_data=Sequences(), config=config_of(
        stage, dtype, gradient_accumulation_steps="auto",
        zero_core={"rank_independent": True, "rank_independent_group": group, "recompute_every": every},
        optimizer={"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.1}}))


def own(stage, dtype, last, folder, group=1, every=0, change=lambda engine: None):
    """A script's own loop."""
    engine, _, loader, _ = make_engine(stage, dtype, group, every)
    engine.load_checkpoint(folder)
    change(engine)
    losses = []
    while engine.global_steps < last:
        for batch in loader:
            engine.backward(engine(**batch).loss)
            ends = engine.is_gradient_accumulation_boundary()
            engine.step()
            if ends:
                losses.append(engine.last_step.loss)
            if engine.global_steps == last:
                break
    engine.save_checkpoint(folder)
    return losses, engine.digest()


def grouped(stage, dtype, last, folder):
    """The same, with rounded sums of four micro-batches each."""
    return own(stage, dtype, last, folder, group=4)


def repeated(stage, dtype, last, folder):
    """The same, with ranks that repeat each other's micro-batches in every second step. On one rank only the loop itself,
    whose results it must have."""
    ranks = zerocore.ranks().size
    return own(stage, dtype, last, folder, every=2 if ranks > 1 or int(stage) > 0 else 0)


def wrong(stage, dtype, last, folder):
    """Rank 1 computes a wrong gradient in each micro-batch from step 3 on."""
    def change(engine):
        def flip(gradient):
            return gradient * 1.0001 if engine.global_steps >= 2 and zerocore.ranks().rank == 1 else gradient
        engine.module.transformer.h[1].mlp.c_fc.weight.register_hook(flip)
    return own(stage, dtype, last, folder, every=2, change=change)


class StopAfter(transformers.TrainerCallback):
    def __init__(self, step):
        self._step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self._step:
            control.should_save = control.should_training_stop = True


class KeepLosses(transformers.TrainerCallback):
    def __init__(self):
        self.trainer, self.losses = None, []

    def on_step_end(self, args, state, control, **kwargs):
        self.losses.append(self.trainer.model_wrapped.last_step.loss)


def trainer(stage, dtype, last, folder):
    """The Trainer of transformers, with its own schedule, evaluations and checkpoints."""
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    keep = KeepLosses()
    arguments = transformers.TrainingArguments(
        folder, per_device_train_batch_size=SIZE, max_steps=8, learning_rate=3e-3, max_grad_norm=0.5, warmup_steps=2, logging_steps=1,
        eval_strategy="steps", eval_steps=2, save_steps=100, report_to=[], seed=11, disable_tqdm=True, bf16=dtype == "bf16",
        deepspeed=config_of(stage, dtype))
    run = transformers.Trainer(model=make_model(), train_dataset=Sequences(), eval_dataset=Sequences(5), args=arguments,
                               callbacks=[StopAfter(last), keep])
    keep.trainer = run
    saved = transformers.trainer_utils.get_last_checkpoint(folder) if os.path.isdir(folder) else None
    run.train(resume_from_checkpoint=saved)
    return keep.losses, run.model_wrapped.digest()


def others(stage, dtype, last, folder):
    """Models that use layers twice, drop some, or recompute them, in a loop that makes its own samples and calls backward
    by hand."""
    found = []
    for name in OTHERS:
        model, loss_of = models.make(name)
        engine, *_ = zerocore.initialize(model=model, config=config_of(stage, dtype, optimizer={
            "type": "AdamW", "params": {"lr": 1e-3}}))
        while engine.global_steps < last:
            torch.manual_seed(engine.seed_of_micro_batch())
            engine.scale(loss_of(engine)).backward()
            engine.step()
        found.append((name, engine.last_step.loss, engine.last_step.grad_norm, engine.digest()))
        engine.destroy()
    return found, 0


def twice(stage, dtype, last, folder):
    """Two passes with dropout before each backward, on three micro-batches, and a step whose gradients are dropped and that
    is done again."""
    engine, *_ = zerocore.initialize(model=make_model(), config=config_of(
        stage, dtype, train_batch_size=3 * SIZE, optimizer={"type": "AdamW", "params": {"lr": 3e-3}}))
    losses = []
    while engine.global_steps < last:
        for attempt in range(2 if engine.global_steps == 1 else 1):
            if attempt > 0:
                engine.zero_grad()
            for index in range(engine.gradient_accumulation_steps()):
                if index > 0:
                    engine.step()
                torch.manual_seed(engine.seed_of_micro_batch())
                tokens = torch.randint(0, 67, (SIZE, 10))
                engine.backward(sum(engine(input_ids=tokens, labels=tokens).loss for _ in range(2)))
        engine.step()
        losses.append(engine.last_step.loss)
    return losses, engine.digest()


def refusal(call):
    try:
        call()
    except zerocore.Error as error:
        return str(error)
    raise SystemExit("there was no error")


def refused(stage, dtype, last, folder):
    """Calls that have no place under rank_independent: each rank prints nothing, rank 0 the errors."""
    core = {"rank_independent": True, "recompute_every": 5}
    texts = [refusal(lambda: transformers.TrainingArguments(folder, deepspeed=config_of(stage, dtype, zero_core=core)))]
    texts += [refusal(lambda: zerocore.GlobalSampler(Sequences()).__iter__().__next__())]
    engine, _, loader, _ = make_engine(stage)
    batches = iter(loader)

    def backward(**options):
        engine.backward(engine(**next(batches)).loss, **options)

    texts.append(refusal(engine.step))
    loss = engine(**next(batches)).loss
    texts.append(refusal(lambda: engine.backward(loss, scale_wrt_gas=False)))
    texts.append(refusal(lambda: engine.read(engine.module.lm_head.weight)))
    engine.zero_grad()  # a common place for it
    engine.backward(loss)
    engine.set_gradient_accumulation_boundary(True)
    texts.append(refusal(engine.step))
    engine.set_gradient_accumulation_boundary(False)
    engine.step()
    texts.append(refusal(lambda: engine.save_checkpoint(folder)))
    texts.append(refusal(engine.zero_grad))
    backward()
    engine.step()
    backward()
    gradient = zerocore.safe_get_full_grad(engine.module.lm_head.weight)
    engine.set_gradient_accumulation_boundary(True)
    engine.step()
    assert gradient.abs().sum() > 0 and engine.global_steps == 1
    texts.append(refusal(lambda: engine.deepspeed_io(Sequences(), batch_size=1)))
    texts.append(refusal(lambda: next(iter(zerocore.GlobalSampler(Sequences(11))))))
    engine.set_gradient_accumulation_boundary(False)
    for _ in range(2):
        backward()
        engine.step()
    backward()
    texts.append(refusal(backward))
    return texts, 0


def main(*cells):
    ranks = zerocore.ranks()
    for cell in cells:
        kind, stage, dtype, last, folder = cell.split(",")
        values, digest = {"own": own, "grouped": grouped, "repeated": repeated, "trainer": trainer, "others": others,
                          "twice": twice, "refused": refused, "wrong": wrong}[kind](stage, dtype, int(last), folder)
        if ranks.rank == 0:
            print("CELL " + json.dumps({"cell": cell, "values": values, "digest": digest}), flush=True)


main(*sys.argv[1:])
