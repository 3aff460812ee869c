"""Cells of TRL: SFT, DPO, Reward and GRPO without vLLM."""

import os

import torch
from datasets import Dataset

from hugging_face import made
from hugging_face.plain import in_bf16
from hugging_face.trainer_cells import ds_config, losses

STEPS = 3


def arguments(kind, cell, **more):
    engine = {"deepspeed": ds_config(cell.stage)} if cell.stage is not None and not cell.plain else {}
    return kind(cell.folder, per_device_train_batch_size=4 // cell.ranks, max_steps=STEPS, learning_rate=1e-3, logging_steps=1,
                report_to=[], seed=11, bf16=cell.bf16 and not cell.plain, disable_tqdm=True, save_strategy="no",
                lr_scheduler_type="cosine", **engine, **more)


def fitted(cell, model):
    return in_bf16(model) if cell.plain and cell.bf16 else model


def saved(cell):
    """Returns the path of a saved model, which TRL loads with the arguments for loading: at stage 3 inside
    zero.Init."""
    if cell.plain and cell.bf16 and cell.kind == "sft":
        return fitted(cell, made.causal("llama")), {}
    path = os.path.join(cell.folder, "made")
    if cell.rank == 0:
        made.causal("llama").save_pretrained(path)
        made.tokenizer().save_pretrained(path)
    if cell.ranks > 1:
        torch.distributed.barrier()
    return path, {"model_init_kwargs": {"dtype": "bfloat16" if cell.plain and cell.bf16 else "float32"}}


def adapter(cell, **more):
    return {"peft_config": made.lora(**more)} if cell.lora else {}


def trained(cell, trainer):
    if cell.lora:
        generator = torch.Generator().manual_seed(5)
        for name, parameter in trainer.model.named_parameters():
            if "lora_" in name and parameter.numel():
                parameter.data.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
    trainer.train()
    return {"losses": losses(trainer)}


def sft(cell):
    from trl import SFTConfig, SFTTrainer
    rows = Dataset.from_dict({"text": [made.text(seed, 6 + seed % 5) for seed in range(24)]})
    path, loading = saved(cell)
    return trained(cell, SFTTrainer(
        model=path, train_dataset=rows, processing_class=made.tokenizer(),
        args=arguments(SFTConfig, cell, max_length=24, gradient_accumulation_steps=2, **loading),
        **adapter(cell)))


def dpo(cell):
    from trl import DPOConfig, DPOTrainer
    rows = Dataset.from_dict({"prompt": [made.text(seed, 4) for seed in range(24)],
                              "chosen": [" " + made.text(seed + 100, 5) for seed in range(24)],
                              "rejected": [" " + made.text(seed + 200, 3 + seed % 3) for seed in range(24)]})
    reference = {} if cell.lora else {"ref_model": fitted(cell, made.causal("llama"))}
    return trained(cell, DPOTrainer(
        model=fitted(cell, made.causal("llama")), train_dataset=rows, processing_class=made.tokenizer(),
        args=arguments(DPOConfig, cell, max_length=24), **reference, **adapter(cell)))


def reward(cell):
    from trl import RewardConfig, RewardTrainer
    rows = Dataset.from_dict({"chosen": [made.text(seed + 100, 6) for seed in range(24)],
                              "rejected": [made.text(seed + 200, 3 + seed % 4) for seed in range(24)]})
    return trained(cell, RewardTrainer(
        model=fitted(cell, made.classifier()), train_dataset=rows, processing_class=made.tokenizer(),
        args=arguments(RewardConfig, cell, max_length=24), **adapter(cell, task="SEQ_CLS", modules_to_save=["score"])))


def grpo(cell):
    from trl import GRPOConfig, GRPOTrainer

    def many_blues(completions, **kwargs):
        return [sum(len(word) for word in completion.split()) / 10 for completion in completions]

    rows = Dataset.from_dict({"prompt": [made.text(seed, 4) for seed in range(24)]})
    path, loading = saved(cell)
    with Draws(cell.rank):
        return trained(cell, GRPOTrainer(
            model=path, reward_funcs=many_blues, train_dataset=rows,
            processing_class=made.tokenizer(),
            args=arguments(GRPOConfig, cell, num_generations=2, max_completion_length=6, beta=0.1, use_vllm=False,
                           **loading),
            **adapter(cell)))


class Draws:
    """Draws tokens by the row's place in the batch of all ranks, so that results do not depend on the number of
    ranks."""

    def __init__(self, rank):
        self._rank, self._calls, self._tokens = rank, 0, 0

    def __enter__(self):
        from transformers.generation import GenerationMixin
        self._generate, self._multinomial = GenerationMixin.generate, torch.multinomial

        def generate(model, *args, **kwargs):
            self._calls, self._tokens = self._calls + 1, 0
            return self._generate(model, *args, **kwargs)

        def multinomial(chances, num_samples=1, **kwargs):
            self._tokens += 1
            first = self._rank * len(chances)
            drawn = [torch.rand((), dtype=torch.float64, generator=torch.Generator().manual_seed(
                1_000_000 * self._calls + 1000 * self._tokens + first + row)) for row in range(len(chances))]
            return (chances.double().cumsum(-1) < torch.stack(drawn)[:, None]).sum(-1, keepdim=True).clamp(
                max=chances.shape[-1] - 1)

        GenerationMixin.generate, torch.multinomial = generate, multinomial

    def __exit__(self, *error):
        from transformers.generation import GenerationMixin
        GenerationMixin.generate, torch.multinomial = self._generate, self._multinomial
