"""Fine-tuning of a causal language model with its own loop, as in DeepSpeed's tutorials: a client's FusedAdam and a
scheduler of transformers, evaluation, a saved model. Nothing in it refers to ZeroCore."""

import argparse
import math
import os

import deepspeed
import torch
from deepspeed.ops.adam import FusedAdam
from torch.utils.data import DataLoader, SequentialSampler
from torch.utils.data.distributed import DistributedSampler
from transformers import LlamaConfig, LlamaForCausalLM, default_data_collator, get_scheduler


def parse_args():
    parser = argparse.ArgumentParser(description="Finetune a transformers model on a causal language modeling task")
    parser.add_argument("--per_device_train_batch_size", type=int, default=4)
    parser.add_argument("--learning_rate", type=float, default=3e-3)
    parser.add_argument("--weight_decay", type=float, default=0.1)
    parser.add_argument("--num_train_epochs", type=int, default=2)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    parser.add_argument("--gradient_checkpointing", action="store_true")
    parser.add_argument("--zero_stage", type=int, default=0)
    parser.add_argument("--output_dir", type=str, required=True)
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    return parser.parse_args()


def get_train_ds_config(args):
    return {
        "train_batch_size": args.per_device_train_batch_size * torch.distributed.get_world_size()
        * args.gradient_accumulation_steps,
        "train_micro_batch_size_per_gpu": args.per_device_train_batch_size,
        "steps_per_print": 10,
        "zero_optimization": {"stage": args.zero_stage, "stage3_param_persistence_threshold": 0,
                              "stage3_max_live_parameters": 30000000, "stage3_prefetch_bucket_size": 30000000,
                              "memory_efficient_linear": False},
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "prescale_gradients": False,
        "wall_clock_breakdown": False,
        "zero_core": {"gradient_sync": "each"},
    }


def sequences(count, first):
    tokens = [(first + index + (1 + index % 7) * torch.arange(12)) % 61 for index in range(count)]
    return [{"input_ids": t, "attention_mask": torch.ones_like(t), "labels": t} for t in tokens]


def get_all_reduce_mean(tensor):
    torch.distributed.all_reduce(tensor, op=torch.distributed.ReduceOp.SUM)
    return tensor / torch.distributed.get_world_size()


def get_optimizer_grouped_parameters(model, weight_decay):
    no_decay = ["bias", "norm.weight"]
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    return [{"params": [p for n, p in named if not any(nd in n for nd in no_decay)], "weight_decay": weight_decay},
            {"params": [p for n, p in named if any(nd in n for nd in no_decay)], "weight_decay": 0.0}]


def evaluation(model, dataloader):
    model.eval()
    losses = 0
    for step, batch in enumerate(dataloader):
        with torch.no_grad():
            outputs = model(**batch)
        losses += outputs.loss.float()
    return get_all_reduce_mean(torch.exp(losses / (step + 1))).item()


def main():
    args = parse_args()
    deepspeed.init_distributed()
    args.global_rank = torch.distributed.get_rank()
    torch.manual_seed(1234)
    torch.distributed.barrier()
    model = LlamaForCausalLM(LlamaConfig(vocab_size=61, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
                                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32))
    train_dataset, eval_dataset = sequences(64, 0), sequences(12 if args.global_rank == 0 else 20, 5)
    train_dataloader = DataLoader(train_dataset, collate_fn=default_data_collator,
                                  sampler=DistributedSampler(train_dataset), batch_size=args.per_device_train_batch_size)
    eval_dataloader = DataLoader(eval_dataset, collate_fn=default_data_collator,
                                 sampler=SequentialSampler(eval_dataset), batch_size=4)

    optimizer = FusedAdam(get_optimizer_grouped_parameters(model, args.weight_decay), lr=args.learning_rate,
                          betas=(0.9, 0.95))
    steps_per_epoch = math.ceil(len(train_dataloader) / args.gradient_accumulation_steps)
    lr_scheduler = get_scheduler(name="cosine", optimizer=optimizer, num_warmup_steps=2,
                                 num_training_steps=args.num_train_epochs * steps_per_epoch)
    model_engine, optimizer, _, lr_scheduler = deepspeed.initialize(
        model=model, optimizer=optimizer, args=args, config=get_train_ds_config(args), lr_scheduler=lr_scheduler,
        dist_init_required=True)
    if args.gradient_checkpointing:
        model_engine.gradient_checkpointing_enable()

    for epoch in range(args.num_train_epochs):
        model_engine.train()
        for batch in train_dataloader:
            outputs = model_engine(**batch, use_cache=False)
            loss = outputs.loss
            model_engine.backward(loss)
            model_engine.step()
        perplexity = evaluation(model_engine, eval_dataloader)
        if args.global_rank == 0:
            print(f"epoch {epoch} loss {loss.item():.6f} ppl {perplexity:.6f} lr {lr_scheduler.get_last_lr()}")
        model_engine.tput_timer.update_epoch_count()

    if model_engine.zero_optimization_stage() == 3:
        state_dict = model_engine._zero3_consolidated_16bit_state_dict()
    else:
        state_dict = model_engine.module.state_dict()
    if args.global_rank == 0:
        torch.save(state_dict, os.path.join(args.output_dir, "whole.bin"))
    model_engine.save_16bit_model(args.output_dir, "pytorch_model.bin")
    if args.global_rank == 0:
        print("Finished Training")


if __name__ == "__main__":
    main()
