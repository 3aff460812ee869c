"""Cells of Accelerate's own loops."""

import contextlib
import os

import torch
from accelerate import Accelerator
from accelerate.utils import DeepSpeedPlugin

from hugging_face import made
from hugging_face.plain import MasterAdamW, in_bf16


def accelerator_of(cell):
    if cell.plain or cell.yaml is not None:
        return Accelerator(gradient_accumulation_steps=2)
    plugin = DeepSpeedPlugin(zero_stage=cell.stage, gradient_clipping=cell.clip, gradient_accumulation_steps=2)
    return Accelerator(deepspeed_plugin=plugin, mixed_precision="bf16" if cell.bf16 else "no")


def loop(cell):
    """Covers prepare, accumulate, clip_grad_norm_, gather_for_metrics, save_state and load_state, get_state_dict."""
    accelerator = accelerator_of(cell)
    model = made.causal("llama").eval()  # like from_pretrained(); not every script calls train()
    if cell.plain and cell.bf16:
        model = in_bf16(model)
    kind = MasterAdamW if cell.plain and cell.bf16 else torch.optim.AdamW
    optimizer = kind(model.parameters(), lr=1e-3)
    steps = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step // cell.ranks))
    size = 4 // cell.ranks
    train = torch.utils.data.DataLoader(made.Sequences(32, masked=False), batch_size=size, shuffle=False)
    test = torch.utils.data.DataLoader(made.Sequences(10, seed=1, masked=False), batch_size=size)
    if not cell.plain:
        refuse_second_optimizer(accelerator, model, optimizer, train)
    model, optimizer, train, test, steps = accelerator.prepare(model, optimizer, train, test, steps)
    found = []
    for index, batch in enumerate(train):
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                norm = accelerator.clip_grad_norm_(model.parameters(), cell.clip)
            optimizer.step()
            steps.step()
            optimizer.zero_grad()
        found.append(accelerator.reduce(loss.detach().float(), "mean").item())
        if index == 3:
            accelerator.save_state(os.path.join(cell.folder, "state"))
    again = continued(cell, accelerator, model, optimizer, train, steps, found)
    return {"losses": found, "again": again, "norm": float(norm),
            "metrics": metrics(accelerator, model, test), "state": state(cell, accelerator, model)}


def refuse_second_optimizer(accelerator, model, optimizer, train):
    try:
        accelerator.prepare(model, torch.optim.SGD(model.lm_head.parameters(), lr=1e-3), optimizer, train)
    except RuntimeError as error:
        assert "accelerator.prepare: 2 optimizers" in str(error), error
        return
    raise AssertionError("accelerate dropped an optimizer")


def continued(cell, accelerator, model, optimizer, train, steps, before):
    """Runs the second half again, from the state in the middle."""
    if cell.plain and cell.bf16:
        return before[4:]  # torch's optimizers load states in the dtype of the parameters
    accelerator.load_state(os.path.join(cell.folder, "state"))
    found = []
    for index, batch in enumerate(accelerator.skip_first_batches(train, 4)):
        with accelerator.no_sync(model) if index % 2 == 0 else contextlib.nullcontext():  # accumulate(), by hand
            loss = model(**batch).loss
            accelerator.backward(loss)
        if index % 2:
            accelerator.clip_grad_norm_(model.parameters(), cell.clip)
            optimizer.step()
            steps.step()
            optimizer.zero_grad()
        found.append(accelerator.reduce(loss.detach().float(), "mean").item())
    return found


def metrics(accelerator, model, test):
    """Gathers as many rows as the data has, on any number of ranks."""
    model.eval()
    rows = []
    for batch in test:
        with torch.no_grad():
            logits = model(input_ids=batch["input_ids"]).logits
        rows.append(accelerator.gather_for_metrics(logits.float().mean((1, 2))))
    model.train()
    rows = torch.cat(rows)
    return [len(rows), *rows.tolist()]


def state(cell, accelerator, model):
    weights = accelerator.get_state_dict(model)
    count = len(weights) if weights else 0
    unwrapped = accelerator.unwrap_model(model)
    assert type(unwrapped).__name__ == "LlamaForCausalLM", type(unwrapped)
    unwrapped.save_pretrained(os.path.join(cell.folder, "saved"), is_main_process=accelerator.is_main_process,
                              save_function=accelerator.save, state_dict=weights)
    accelerator.wait_for_everyone()
    if not accelerator.is_main_process:
        return None
    from hugging_face.trainer_cells import saved_sum
    return [count, *saved_sum(os.path.join(cell.folder, "saved"))]
