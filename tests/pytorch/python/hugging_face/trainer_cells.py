"""Cells of the Trainer: run(cell) returns the values to compare with one plain process."""

import os

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from hugging_face import made
from hugging_face.plain import in_bf16

STEPS = 6


class StopAfter(TrainerCallback):
    def __init__(self, step):
        self._step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self._step:
            control.should_save = control.should_training_stop = True


def ds_config(stage, **more):
    return {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
            "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": stage}, **more}


def arguments(cell, **more):
    """Makes the batch of all ranks the same for any number of them."""
    engine = {"deepspeed": ds_config(cell.stage)} if cell.stage is not None and not cell.plain else {}
    if cell.fsdp is not None and not cell.plain:
        engine = {"fsdp": True, "fsdp_config": dict(cell.fsdp)}
    return TrainingArguments(
        cell.folder, per_device_train_batch_size=4 // cell.ranks, per_device_eval_batch_size=4 // cell.ranks,
        gradient_accumulation_steps=2, max_steps=STEPS, learning_rate=5e-3, logging_steps=1, report_to=[], seed=11,
        bf16=cell.bf16 and not cell.plain, disable_tqdm=True, **engine, **more)


def model_of(cell, kind="gpt2"):
    model = made.causal(kind)
    if cell.lora:
        from peft import get_peft_model
        model = get_peft_model(model, made.lora())
        torch.manual_seed(3)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.02)
    return in_bf16(model) if cell.plain and cell.bf16 else model


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def features(cell):
    """Covers accumulation, recomputation, evaluation, the best model at the end, predict, and the Trainer's own
    schedule."""
    model = model_of(cell, "llama" if cell.lora else "gpt2")
    trainer = Trainer(model=model, train_dataset=made.Sequences(48), eval_dataset=made.Sequences(10, seed=1, masked=False), args=arguments(
        cell, gradient_checkpointing=True, eval_strategy="steps", eval_steps=2, save_steps=2, load_best_model_at_end=True,
        metric_for_best_model="eval_loss", greater_is_better=cell.lora, lr_scheduler_type=cell.schedule, warmup_steps=2))
    trainer.train()
    evaluated = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    predicted = trainer.predict(made.Sequences(6, seed=2, masked=False))
    trainer.save_model(os.path.join(cell.folder, "model"))
    best = trainer.evaluate()["eval_loss"]
    return {"losses": losses(trainer), "evaluated": evaluated, "best": best,
            "predicted": [float(predicted.metrics["test_loss"]), float(abs(predicted.predictions).mean())],
            "saved": saved_sum(os.path.join(cell.folder, "model")) if trainer.is_world_process_zero() else None}


def saved_sum(folder):
    from safetensors import safe_open
    name = "adapter_model.safetensors" if os.path.exists(f"{folder}/adapter_config.json") else "model.safetensors"
    with safe_open(os.path.join(folder, name), "pt") as file:
        return [len(list(file.keys())), sum(file.get_tensor(key).double().abs().sum().item() for key in file.keys())]


def interrupted(cell):
    """Ends after three steps of six, with a checkpoint."""
    trainer = Trainer(model=model_of(cell), train_dataset=made.Sequences(48), callbacks=[StopAfter(3)],
                      args=arguments(cell, save_steps=100, lr_scheduler_type="linear", warmup_steps=2))
    trainer.train()
    return {"losses": losses(trainer)}


def resumed(cell):
    """Resumes from the checkpoint of `interrupted`, on another number of ranks."""
    trainer = Trainer(model=model_of(cell), train_dataset=made.Sequences(48),
                      args=arguments(cell, save_steps=100, lr_scheduler_type="linear", warmup_steps=2))
    trainer.train(resume_from_checkpoint=None if cell.plain else os.path.join(cell.folder, "checkpoint-3"))
    return {"losses": losses(trainer)}


def given(cell):
    """Evaluates first, trains with an optimizer and a schedule of the script, and then once more."""
    model = model_of(cell)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    trainer = Trainer(model=model, train_dataset=made.Sequences(48), eval_dataset=made.Sequences(10, seed=1, masked=False),
                      args=arguments(cell, save_strategy="no"),
                      optimizers=(optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)))
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    first = losses(trainer)
    trainer.train()
    return {"before": before, "losses": first, "again": losses(trainer)[0]}  # the optimizer begins anew


def compiled(cell):
    """As TrainingArguments(torch_compile=True): each block is compiled."""
    compiles = {} if cell.plain else {"torch_compile": True, "torch_compile_backend": "eager"}
    trainer = Trainer(model=model_of(cell), train_dataset=made.Sequences(48), eval_dataset=made.Sequences(10, seed=1, masked=False),
                      args=arguments(cell, save_strategy="no", **compiles))
    trainer.train()
    blocks = getattr(trainer.model, "transformer", trainer.model).h
    assert cell.plain or all(block._compiled_call_impl is not None for block in blocks)
    return {"losses": losses(trainer), "evaluated": trainer.evaluate()["eval_loss"]}
