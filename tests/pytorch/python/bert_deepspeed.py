"""Masked language modeling with BERT, as in DeepSpeed's tutorials, on generated sentences. Nothing in it refers to
ZeroCore."""

import argparse
import logging
import os

import deepspeed
import torch
from deepspeed.utils import log_dist
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from transformers import BertConfig, BertForMaskedLM

MASK, VOCABULARY = 1, 64


def get_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint_dir", type=str, required=True)
    parser.add_argument("--load_checkpoint", action="store_true")
    parser.add_argument("--num_iterations", type=int, default=9)
    parser.add_argument("--checkpoint_every", type=int, default=4)
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    return parser.parse_args()


class MaskedSentences(Dataset):
    """Numbers that increase by a step, which differs from sentence to sentence."""

    def __len__(self):
        return 256

    def __getitem__(self, index):
        tokens = 2 + (index + (1 + index % 5) * torch.arange(16)) % (VOCABULARY - 2)
        masked = torch.rand(16, generator=torch.Generator().manual_seed(index)) < 0.15
        masked[index % 16] = True
        return {"input_ids": tokens.masked_fill(masked, MASK), "labels": tokens.masked_fill(~masked, -100)}


def prepare_optimizer_parameters(model):
    no_decay = ["bias", "LayerNorm.weight"]
    parameters = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    return [
        {"params": [p for n, p in parameters if not any(nd in n for nd in no_decay)], "weight_decay": 0.01},
        {"params": [p for n, p in parameters if any(nd in n for nd in no_decay)], "weight_decay": 0.0},
    ]


def train(args):
    torch.manual_seed(42)
    model = BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
                                       intermediate_size=48, max_position_embeddings=32))
    engine, optimizer, _, _ = deepspeed.initialize(args=args, model=model,
                                                   model_parameters=prepare_optimizer_parameters(model))
    log_dist("DeepSpeed engine created", ranks=[0], level=logging.INFO)
    dataset = MaskedSentences()
    sampler = DistributedSampler(dataset, shuffle=False)
    batches = list(DataLoader(dataset, batch_size=engine.train_micro_batch_size_per_gpu(), sampler=sampler))
    start_step = 1
    if args.load_checkpoint:
        _, client_state = engine.load_checkpoint(load_dir=args.checkpoint_dir)
        start_step = client_state["checkpoint_step"] + 1
    engine.train()
    for step in range(start_step, args.num_iterations):
        batch = {key: value.to(engine.device) for key, value in batches[step].items()}
        loss = engine(**batch).loss
        engine.backward(loss)
        engine.step()
        if torch.distributed.get_rank() == 0:
            print(f"step {step} loss {loss.item():.6f} lr {optimizer.param_groups[0]['lr']:.2e}")
        if step % args.checkpoint_every == 0:
            engine.save_checkpoint(save_dir=args.checkpoint_dir, client_state={"checkpoint_step": step})
    if int(os.environ.get("RANK", "0")) == 0:
        print("Finished Training")


if __name__ == "__main__":
    train(get_arguments())
