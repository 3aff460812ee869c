"""Models, data and runs of train_gpt for the benchmarks of a GPU. Needs no PyTorch."""

import array
import json
import os
import random
import re
import subprocess
import sys

# Configs in Hugging Face's format; GPT-2's vocabulary is padded to a multiple of 128.
CONFIGS = {
    "gpt2": {"model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768, "vocab_size": 50304, "n_positions": 1024},
    "gpt2-xl": {"model_type": "gpt2", "n_layer": 48, "n_head": 25, "n_embd": 1600, "vocab_size": 50304,
                "n_positions": 1024},
    "llama-1.2b": {"model_type": "llama", "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 32,
                   "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256,
                   "max_position_embeddings": 2048, "rope_theta": 500000.0, "rms_norm_eps": 1e-5,
                   "tie_word_embeddings": True},
    "tiny-gpt2": {"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 64, "vocab_size": 256, "n_positions": 64},
    "tiny-llama": {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
                   "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "vocab_size": 256,
                   "max_position_embeddings": 64, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
                   "tie_word_embeddings": True},
}
BATCH = {"gpt2": 64, "gpt2-xl": 16, "llama-1.2b": 8}  # samples per step
ADAMW = {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
CLIP = 1.0


def context(config):
    return config.get("n_positions", config.get("max_position_embeddings"))


def model_config(name, vocabulary=None):
    return CONFIGS[name] | ({"vocab_size": vocabulary} if vocabulary else {})


def draw_tokens(vocabulary, count, seed=7):
    """Draws tokens with about the frequencies of words, since the embedding's gradient sums over the places of one
    token: with few different tokens, or equally frequent ones, that would take another time."""
    draw = random.Random(seed).random
    return array.array("I", (int(vocabulary * draw() ** 3) for _ in range(count)))


def write_inputs(folder, config, tokens):
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokens.bin").write_bytes(array.array("I", tokens).tobytes())


def settings(batch, bf16=True, **more):
    return {"train_micro_batch_size_per_gpu": batch, "gradient_clipping": CLIP, "bf16": {"enabled": bf16},
            "optimizer": {"type": "AdamW", "params": {**ADAMW, "betas": list(ADAMW["betas"])}}, **more}


class Run:
    """A run of train_gpt over the files of write_inputs(): the records of its steps, its summary, its attention
    kernels.

    Ends the program if train_gpt fails, and if the attention of 16-bit types on a GPU is not cuDNN's, since its speed
    would differ. `any_attention` accepts any, because a machine without a GPU has no cuDNN.
    """

    def __init__(self, program, folder, config, steps, device="cuda", init=False, any_attention=False, prefix=(),
                 more=()):
        (folder / "ds_config.json").write_text(json.dumps(config))
        log = folder / "log.json"
        model = json.loads((folder / "config.json").read_text())
        command = [*prefix, program, "--device", device, "--deepspeed-config", folder / "ds_config.json", "--model",
                   folder / "config.json", *(["--init", folder] if init else []), "--data", folder / "tokens.bin",
                   "--token-dtype", "uint32", "--sequence-length", context(model), "--steps", steps, "--log-json", log, *more]
        run = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(run.stdout, flush=True)
        if run.returncode != 0:
            sys.exit(f"train_gpt: code {run.returncode}: {' | '.join(run.stdout.strip().splitlines()[-2:])}")
        found = re.search(r"^kernels +attention by (.*)", run.stdout, re.MULTILINE)
        self.attention = found[1] if found else ""
        if device == "cuda" and config["bf16"]["enabled"] and not any_attention and "cuDNN" not in self.attention[:5]:
            sys.exit(f"attention is not cuDNN's: {self.attention}")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        self.records = [line for line in lines if "step" in line]
        self.rank = next(line["summary"] for line in lines if "summary" in line)["ranks"][0]

    def step_ms(self, warmup):
        """Returns sorted times without the first steps and the last, since the last waits for no step after it."""
        return sorted(record["step_ms"] for record in self.records[warmup:-1] or self.records)


def add_options(parser):
    """Adds the options that all of these programs share."""
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("--model", choices=CONFIGS, default="gpt2")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--any-attention", action="store_true", help="cuDNN's or not")
