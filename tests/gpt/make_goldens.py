"""Writes the PyTorch reference of gpt_goldens_test into tests/data/.

Needs torch, transformers, safetensors and numpy (pip install torch transformers safetensors numpy):

    python3 tests/gpt/make_goldens.py tests/data

A small GPT-2 with random weights is trained for 20 AdamW steps in fp32 on random tokens. Stored: the start weights,
the tokens, the loss of each step, the gradients (before clipping) of steps 1 and 10, and the final weights.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

STEPS, BATCH, SEQUENCE, VOCABULARY = 20, 3, 16, 61
GRADIENT_STEPS = (1, 10)
OPTIMIZER = {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
CLIP = 1.0


def make_model():
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=SEQUENCE, n_embd=36, n_layer=2, n_head=3, attn_pdrop=0.0, embd_pdrop=0.0,
        resid_pdrop=0.0, bos_token_id=0, eos_token_id=0, attn_implementation="eager")
    model = GPT2LMHeadModel(config).float()
    generator = torch.Generator().manual_seed(2024)
    with torch.no_grad():
        for name, value in model.transformer.named_parameters():
            noise = torch.randn(value.shape, generator=generator)
            is_norm_weight = ".ln_" in "." + name and name.endswith("weight")
            value.copy_(1 + 0.1 * noise if is_norm_weight else 0.1 * noise)
    return model


def tensors(model, gradients=False):
    return {"transformer." + name: (value.grad if gradients else value).detach().clone().contiguous()
            for name, value in model.transformer.named_parameters()}


def main(folder):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    model = make_model()
    save_file(tensors(model), folder / "gpt2_start.safetensors", metadata={"format": "pt"})
    named = list(model.transformer.named_parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for _, p in named if p.dim() > 1]},
         {"params": [p for _, p in named if p.dim() == 1], "weight_decay": 0.0}],
        lr=OPTIMIZER["lr"], betas=OPTIMIZER["betas"], eps=OPTIMIZER["eps"], weight_decay=OPTIMIZER["weight_decay"])
    tokens = torch.randint(0, VOCABULARY, (STEPS, BATCH, SEQUENCE + 1), generator=torch.Generator().manual_seed(7))
    losses, norms = [], []
    for step in range(STEPS):
        logits = model(tokens[step, :, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[step, :, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        if step + 1 in GRADIENT_STEPS:
            save_file(tensors(model, gradients=True), folder / f"gpt2_gradients_{step + 1}.safetensors")
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
        optimizer.step()
        losses.append(loss.item())
    save_file(tensors(model), folder / "gpt2_end.safetensors", metadata={"format": "pt"})
    (folder / "gpt2_goldens.json").write_text(json.dumps({
        "torch": torch.__version__, "n_layer": 2, "n_head": 3, "n_embd": 36, "vocab_size": VOCABULARY,
        "n_positions": SEQUENCE, "batch": BATCH, "optimizer": OPTIMIZER, "gradient_clipping": CLIP,
        "gradient_steps": GRADIENT_STEPS, "losses": losses, "gradient_norms": norms,
        "tokens": tokens.reshape(STEPS, -1).tolist()}) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
