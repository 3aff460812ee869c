"""Hugging Face's Trainer with a DeepSpeed config: trainer_deepspeed.py STAGE FOLDER [resume] [cosine]. Nothing in it
refers to ZeroCore. With `cosine` the schedule is the Trainer's, else the config's."""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Sequences(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        tokens = (torch.arange(16) * (index % 5 + 1)) % 97
        return {"input_ids": tokens, "labels": tokens}


class Scales(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, **more):
        pass


def main(stage, folder, resume, cosine):
    torch.manual_seed(7)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=97, n_positions=32, n_embd=24, n_layer=2, n_head=3, bos_token_id=0,
                                       eos_token_id=0))
    config = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "zero_optimization": {"stage": stage},
        "zero_core": {"gradient_sync": "each"},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                                     "warmup_num_steps": "auto"}},
    }
    own = {"lr_scheduler_type": "cosine", "warmup_steps": 2} if cosine else {}
    if cosine:
        del config["scheduler"]
    arguments = TrainingArguments(folder, deepspeed=config, per_device_train_batch_size=2, learning_rate=1e-3,
                                  gradient_accumulation_steps=2, num_train_epochs=1, logging_steps=2, save_steps=4,
                                  report_to=[], **own)
    trainer = Trainer(model=model, args=arguments, train_dataset=Sequences(), eval_dataset=Sequences(),
                      callbacks=[Scales])
    trainer.train(resume_from_checkpoint=resume or None)
    evaluation = trainer.evaluate()["eval_loss"]
    trainer.save_model(f"{folder}/model")
    if trainer.is_world_process_zero():
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        print("result", losses, evaluation)


main(int(sys.argv[1]), sys.argv[2], "resume" in sys.argv, "cosine" in sys.argv)
