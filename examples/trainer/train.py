"""Hugging Face's Trainer at ZeRO stage 3: a small GPT-2 learns the text of this file, a byte is a token. With `lora`, by peft's
adapters of a random GPT-2: the frozen weights are in parts over the ranks too, and the adapters alone are saved.

    ZEROCORE_AS_DEEPSPEED=1 torchrun --nproc-per-node 2 train.py [lora]
"""

import pathlib
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

HERE = pathlib.Path(__file__).parent
LENGTH = 64


class Windows(torch.utils.data.Dataset):
    """All stretches of LENGTH bytes."""

    def __init__(self, text):
        self.bytes = torch.tensor(list(text))

    def __len__(self):
        return len(self.bytes) - LENGTH

    def __getitem__(self, begin):
        tokens = self.bytes[begin:begin + LENGTH]
        return {"input_ids": tokens, "labels": tokens}


def with_adapters(model):
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules=["c_attn", "c_fc", "c_proj"],
                                             modules_to_save=["ln_f"], fan_in_fan_out=True))
    trained, whole = model.get_nb_trainable_parameters()
    print(f"trains {trained:,} of {whole:,} parameters")
    return model


def main():
    lora = sys.argv[1:] == ["lora"]
    arguments = TrainingArguments("trained", deepspeed=str(HERE / "ds_config.json"), per_device_train_batch_size=4,
                                  gradient_accumulation_steps=2, learning_rate=5e-2 if lora else 3e-3, max_steps=60, logging_steps=10,
                                  save_strategy="no", report_to=[])
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=LENGTH, n_embd=64, n_layer=2, n_head=4,
                                       bos_token_id=0, eos_token_id=0))
    trainer = Trainer(model=with_adapters(model) if lora else model, args=arguments, train_dataset=Windows(pathlib.Path(__file__).read_bytes()))
    trainer.train()
    trainer.save_model("trained")
    if trainer.is_world_process_zero():
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        print(f"loss {float(losses[0]):.2f} at step 10, {float(losses[-1]):.2f} at step {arguments.max_steps}; "
              "the model is in trained")


main()
