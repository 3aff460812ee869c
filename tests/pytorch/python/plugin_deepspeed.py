"""Accelerate's loop as LLaMA-Factory makes it: plugin_deepspeed.py STAGE FOLDER. The model is loaded under a plugin of its
own, whose "auto" values the program fills in, its embeddings grow, and no loader is prepared. FOLDER has the model, and gets a checkpoint."""

import copy
import os
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import DeepSpeedPlugin
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.integrations import is_deepspeed_zero3_enabled, unset_hf_deepspeed_config


def config(stage):
    auto = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
    return {**{key: "auto" for key in auto}, "zero_allow_untested_optimizer": True, "fp16": {"enabled": False},
            "bf16": {"enabled": False}, "zero_core": {"gradient_sync": "each"},  # one order of sums at all stages
            "zero_optimization": {"stage": stage, "overlap_comm": False, "contiguous_gradients": True, "sub_group_size": 1e9,
                                  "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
                                  "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
                                  "stage3_gather_16bit_weights_on_model_save": True}}


def load(stage, folder):
    document = copy.deepcopy(config(stage))
    document.update(gradient_accumulation_steps=1, train_micro_batch_size_per_gpu=1)
    del document["train_batch_size"]
    plugin = DeepSpeedPlugin(hf_ds_config=document, zero3_init_flag=stage == 3)
    plugin.set_mixed_precision("no")
    plugin.set_deepspeed_weakref()
    assert is_deepspeed_zero3_enabled() == (stage == 3)
    model = GPT2LMHeadModel.from_pretrained(folder)
    torch.manual_seed(4)
    model.resize_token_embeddings(67)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    unset_hf_deepspeed_config()
    return model


def prepare(stage, model):
    plugin = DeepSpeedPlugin(hf_ds_config=config(stage))
    plugin.set_mixed_precision("no")
    accelerator = Accelerator(deepspeed_plugin=plugin, gradient_accumulation_steps=2)
    accelerator.state.deepspeed_plugin.deepspeed_config["train_micro_batch_size_per_gpu"] = 2
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    return accelerator, *accelerator.prepare(model, optimizer, scheduler)


def steps(accelerator, model, optimizer, scheduler, micro_steps):
    losses = []
    for index in micro_steps:
        tokens = (torch.arange(16) + 7 * index + 2 * accelerator.process_index).repeat(2, 1) % 61
        with accelerator.accumulate(model):
            loss = model(input_ids=tokens, labels=tokens).loss
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())
    return losses


def main(stage, folder):
    if os.environ["RANK"] == "0" and not os.path.exists(folder + "/config.json"):
        torch.manual_seed(3)
        sizes = {"vocab_size": 61, "n_positions": 16, "n_embd": 24, "n_layer": 2, "n_head": 2}
        GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)).save_pretrained(folder)
    torch.distributed.init_process_group("gloo")
    torch.distributed.barrier()
    accelerator, model, optimizer, scheduler = prepare(stage, load(stage, folder))
    losses = steps(accelerator, model, optimizer, scheduler, range(4))
    accelerator.save_state(f"{folder}/state-{stage}")
    later = steps(accelerator, model, optimizer, scheduler, range(4, 6))
    accelerator.load_state(f"{folder}/state-{stage}")
    assert steps(accelerator, model, optimizer, scheduler, range(4, 6)) == later
    state = accelerator.get_state_dict(model)
    norm = accelerator.deepspeed_engine_wrapped.engine.get_global_grad_norm()
    if accelerator.is_main_process:
        total = sum(value.double().sum().item() for value in state.values())
        print(f"losses {[f'{loss:.6f}' for loss in losses + later]} norm {norm:.5f} sum {total:.4f}", flush=True)


main(int(sys.argv[1]), sys.argv[2])
