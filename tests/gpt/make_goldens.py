"""Writes the PyTorch references of the trainer's tests into tests/data/.

Needs torch, transformers, safetensors and numpy (pip install torch transformers safetensors numpy):

    python3 tests/gpt/make_goldens.py tests/data [gpt2] [llama] [qwen2] [olmo2] [rope]

A small model with random weights is trained for 20 AdamW steps in fp32 on random tokens. Stored: the start weights, the
tokens, the loss of each step, the gradients (before clipping) of steps 1 and 10, the final weights, and, for the newer
families, the losses of PyTorch's own bf16 with fp32 master weights. "rope": the frequencies of rotary embeddings under
several kinds of rope_scaling.
"""

import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Olmo2Config, Olmo2ForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM)

STEPS, BATCH, SEQUENCE, VOCABULARY = 20, 3, 16, 61
GRADIENT_STEPS = (1, 10)
OPTIMIZER = {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
CLIP = 1.0

GPT2 = {"n_layer": 2, "n_head": 3, "n_embd": 36, "vocab_size": VOCABULARY, "n_positions": SEQUENCE}
# Both have lengths that rope_scaling treats in all of its ways.
LLAMA = {
    "num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 6,
    "intermediate_size": 40, "vocab_size": VOCABULARY, "max_position_embeddings": 24, "tie_word_embeddings": False,
    "rms_norm_eps": 1e-5, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 50.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 12}}
QWEN2 = {
    "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 44, "vocab_size": VOCABULARY, "max_position_embeddings": 16, "tie_word_embeddings": True,
    "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "original_max_position_embeddings": 8,
        "beta_fast": 2.0, "beta_slow": 0.25}}
# Without a padding token, since PyTorch does not train its embedding.
OLMO2 = {
    "num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 40, "vocab_size": VOCABULARY, "max_position_embeddings": 16, "tie_word_embeddings": False,
    "pad_token_id": None, "eos_token_id": None}


def make_gpt2():
    model = GPT2LMHeadModel(GPT2Config(**GPT2, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, bos_token_id=0,
                                       eos_token_id=0, attn_implementation="eager"))
    return model, model.transformer, "transformer."


def make_llama():
    model = LlamaForCausalLM(LlamaConfig(**LLAMA, attn_implementation="eager"))
    return model, model, ""


def make_qwen2():
    model = Qwen2ForCausalLM(Qwen2Config(**QWEN2, attn_implementation="eager"))
    return model, model, ""


def make_olmo2():
    model = Olmo2ForCausalLM(Olmo2Config(**OLMO2, attn_implementation="eager"))
    return model, model, ""


MAKERS = {"gpt2": make_gpt2, "llama": make_llama, "qwen2": make_qwen2, "olmo2": make_olmo2}


def is_norm_weight(name):
    return name.endswith("norm.weight") or (".ln_" in "." + name and name.endswith("weight"))


def fill(parameters):
    generator = torch.Generator().manual_seed(2024)
    with torch.no_grad():
        for name, value in parameters:
            noise = torch.randn(value.shape, generator=generator)
            value.copy_(1 + 0.1 * noise if is_norm_weight(name) else 0.1 * noise)


def tensors(module, prefix, gradients=False):
    return {prefix + name: (value.grad if gradients else value).detach().clone().contiguous()
            for name, value in module.named_parameters()}


def settings_of(name, model):
    """Returns the settings of the C++ test's model: for the newer families, config.json as transformers writes it."""
    return GPT2 if name == "gpt2" else {"config": json.loads(model.config.to_json_string(use_diff=False))}


def optimizer_of(parameters):
    return torch.optim.AdamW(
        [{"params": [p for p in parameters if p.dim() > 1]},
         {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}],
        lr=OPTIMIZER["lr"], betas=OPTIMIZER["betas"], eps=OPTIMIZER["eps"], weight_decay=OPTIMIZER["weight_decay"])


def loss_of(model, tokens):
    logits = model(tokens[:, :-1]).logits.float()
    return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))


def bf16_losses(name, tokens):
    """Runs the same training with parameters, activations and gradients in bf16."""
    masters, model = MAKERS[name]()[0].float(), MAKERS[name]()[0].bfloat16()
    fill(masters.named_parameters())
    optimizer = optimizer_of(list(masters.parameters()))
    losses = []
    for step in range(STEPS):
        with torch.no_grad():
            for master, value in zip(masters.parameters(), model.parameters()):
                value.copy_(master)
        model.zero_grad()
        loss = loss_of(model, tokens[step])
        loss.backward()
        for master, value in zip(masters.parameters(), model.parameters()):
            master.grad = value.grad.float()
        torch.nn.utils.clip_grad_norm_(masters.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
    return losses


def train(folder, name):
    model, module, prefix = MAKERS[name]()
    model.float()
    fill(module.named_parameters())
    save_file(tensors(module, prefix), folder / f"{name}_start.safetensors", metadata={"format": "pt"})
    optimizer = optimizer_of(list(module.parameters()))
    tokens = torch.randint(0, VOCABULARY, (STEPS, BATCH, SEQUENCE + 1), generator=torch.Generator().manual_seed(7))
    losses, norms = [], []
    for step in range(STEPS):
        loss = loss_of(model, tokens[step])
        optimizer.zero_grad()
        loss.backward()
        if step + 1 in GRADIENT_STEPS:
            save_file(tensors(module, prefix, gradients=True), folder / f"{name}_gradients_{step + 1}.safetensors")
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
        optimizer.step()
        losses.append(loss.item())
    save_file(tensors(module, prefix), folder / f"{name}_end.safetensors", metadata={"format": "pt"})
    bf16 = {} if name == "gpt2" else {"bf16_losses": bf16_losses(name, tokens)}
    (folder / f"{name}_goldens.json").write_text(json.dumps({
        "torch": torch.__version__, "transformers": transformers.__version__, **settings_of(name, model),
        "sequence": SEQUENCE, "batch": BATCH, "optimizer": OPTIMIZER, "gradient_clipping": CLIP,
        "gradient_steps": GRADIENT_STEPS, "losses": losses, **bf16, "gradient_norms": norms,
        "tokens": tokens.reshape(STEPS, -1).tolist()}) + "\n")


ROPES = [
    {"rope_type": "default", "rope_theta": 10000.0},
    {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5},
    {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
    {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 8192},
    {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "original_max_position_embeddings": 32768},
    {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "original_max_position_embeddings": 4096,
     "beta_fast": 24.0, "beta_slow": 2.0, "mscale": 0.7, "mscale_all_dim": 1.2},
    {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "original_max_position_embeddings": 4096,
     "truncate": False, "mscale": 0.7},
    {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 1.0, "attention_factor": 1.25},
    # The whole ramp is below the first pair, so its two ends coincide.
    {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "original_max_position_embeddings": 6},
]


def ropes(folder):
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
    cases = []
    for rope in ROPES:
        config = LlamaConfig(hidden_size=256, num_attention_heads=4, max_position_embeddings=16384,
                             rope_parameters=dict(rope))
        embedding = LlamaRotaryEmbedding(config)
        cases.append({"rope_parameters": rope, "frequencies": embedding.inv_freq.tolist(),
                      "amplitude": embedding.attention_scaling})
    (folder / "rope_goldens.json").write_text(json.dumps({
        "transformers": transformers.__version__, "head_channels": 64, "context": 16384, "cases": cases}) + "\n")


def main(folder, names):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in names or [*MAKERS, "rope"]:
        ropes(folder) if name == "rope" else train(folder, name)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
