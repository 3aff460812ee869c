"""Runs accelerate's own test scripts one after another in the same processes: packaged.py FOLDER ("engine" or "installs")
CELL... A cell is SCRIPT:FILE with one of TRL's files for accelerate, "launched" for the settings of the
launcher, or "none". Their data set, metric and pretrained model are small ones that are made here."""

import functools
import importlib
import json
import os
import random
import sys
import types

import torch

SCRIPTS = "accelerate.test_utils.scripts"


class Metric:
    def __init__(self):
        self._pairs = []

    def add_batch(self, predictions, references):
        self._pairs += list(zip(predictions.tolist(), references.tolist()))

    def compute(self):
        pairs, self._pairs = self._pairs, []
        right = sum(a == b for a, b in pairs)
        return {"accuracy": right / len(pairs), "f1": right / len(pairs)}


def give_small_ones():
    """Takes the places of the hub's: `evaluate`, load_dataset(), and the models of both names."""
    import datasets
    metrics = types.ModuleType("evaluate")
    metrics.load = lambda *names: Metric()
    sys.modules["evaluate"] = metrics

    def load_dataset(name, part, split=None):
        from hugging_face.made import WORDS
        rows = {}
        for kind, count in (("train", 96), ("validation", 32)):
            generator = random.Random(kind)
            words = [generator.choices(WORDS, k=6) for _ in range(count)]
            rows[kind] = datasets.Dataset.from_dict({
                "idx": list(range(count)), "label": [int(each[0] < "m") for each in words],
                "sentence1": [" ".join(each) for each in words], "sentence2": [" ".join(each[:2]) for each in words]})
        return rows[split] if split else datasets.DatasetDict(rows)

    datasets.load_dataset = load_dataset


def save_models(folder):
    from hugging_face import made
    from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2Model
    tokenizer = made.tokenizer()
    torch.manual_seed(1)
    bert = BertConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
                      max_position_embeddings=128, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    for name, model in (("bert", BertForSequenceClassification(bert)),
                        ("gpt2", GPT2Model(GPT2Config(vocab_size=40, n_positions=16, n_embd=8, n_layer=1, n_head=1)))):
        model.save_pretrained(f"{folder}/{name}")
        tokenizer.save_pretrained(f"{folder}/{name}")
    for stage in (2, 3):
        with open(f"{folder}/zero{stage}.json", "w", encoding="utf-8") as file:
            json.dump({"bf16": {"enabled": True}, "zero_optimization": {"stage": stage}, "gradient_clipping": 1.0,
                       "train_micro_batch_size_per_gpu": "auto" if stage == 2 else 1, "train_batch_size": "auto"}, file)


def file_of(settings, own):
    """Returns a copy of one of TRL's files, in fp32, with the number that test_checkpointing reads."""
    import trl
    with open(os.path.join(os.path.dirname(trl.__file__), "accelerate_configs", f"{settings}.yaml"), encoding="utf-8") as file:
        text = file.read().replace("mixed_precision: bf16", "mixed_precision: 'no'")
    if "gradient_accumulation_steps" not in text:
        text = text.replace("deepspeed_config:", "deepspeed_config:\n  gradient_accumulation_steps: 1")
    os.makedirs(own, exist_ok=True)
    with open(f"{own}/{settings}.yaml", "w", encoding="utf-8") as file:
        file.write(text)
    return f"{own}/{settings}.yaml"


def arguments_of(name, own):
    """Returns the arguments of each run of the script."""
    if name == "test_performance":
        return [["--output_dir", own, "--num_epochs", "2", "--model_name_or_path", "MODEL"]]
    if name == "test_checkpointing":
        train = ["--output_dir", own, "--num_epochs", "2", "--model_name_or_path", "MODEL"]
        return [[*train, "--partial_train_epoch", "1"], [*train, "--resume_from_checkpoint", f"{own}/epoch_0"]]
    if name == "test_ds_multiple_model":
        return [["--num_epochs", "4", "--model_name_or_path", "MODEL"]]
    return [[]]


def run_script(name, models, own):
    outside = {"test_script", "test_ops", "test_cli"}
    module = importlib.import_module(f"{SCRIPTS}.{name}" if name in outside else f"{SCRIPTS}.external_deps.{name}")
    if name == "test_zero3_integration":
        module.GPT2_TINY = f"{models}/gpt2"
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    if name == "test_ds_multiple_model":
        module.ds_config_file = {f"zero{stage}": f"{models}/zero{stage}.json" for stage in (2, 3)}
        module.AdamW = functools.partial(_faster, torch.optim.AdamW)
    os.makedirs(own, exist_ok=True)
    for arguments in arguments_of(name, own):
        sys.argv[1:] = [f"{models}/bert" if word == "MODEL" else word for word in arguments]
        module.main()


def _faster(optimizer, parameters, lr):
    """The script expects progress in a few steps of a model that has learned a language."""
    return optimizer(parameters, lr=100 * lr)


def main(folder, mode, *cells):
    import datasets
    give_small_ones()
    if mode == "installs":
        import accelerate.accelerator
        import zerocore.as_deepspeed
        zerocore.as_deepspeed.install()
    import deepspeed
    from hugging_face.run import forget
    from zerocore.as_deepspeed.accelerate_files import use_config_file
    datasets.disable_progress_bars()
    deepspeed.init_distributed()
    rank, models = torch.distributed.get_rank(), f"{folder}/models"
    if rank == 0:
        save_models(models)
    torch.distributed.barrier()
    for text in cells:
        name, settings = text.split(":")
        own = f"{folder}/{name}_{settings}"
        if settings != "launched":
            forget()
        if settings not in ("launched", "none"):
            use_config_file(file_of(settings, f"{folder}/{rank}"))
        deepspeed.init_distributed()
        run_script(name, models, own)
        if rank == 0:
            print("CELL " + json.dumps({"cell": text}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
