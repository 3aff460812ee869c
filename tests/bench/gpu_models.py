"""GPT-2 and Llama in PyTorch as a user would write them, with Hugging Face's names and shapes, and their start values.

Attention is F.scaled_dot_product_attention, by cuDNN if the device has it.
"""

import json
import struct

import torch
from torch import nn
from torch.nn import functional as F


class Conv1D(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(inputs, outputs)), nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return torch.addmm(self.bias.to(x.dtype), x.flatten(0, -2), self.weight.to(x.dtype)).unflatten(0, x.shape[:-1])


def attend(query, key, value, heads, key_heads):
    split = [part.unflatten(-1, (count, -1)).transpose(1, 2)
             for part, count in ((query, heads), (key, key_heads), (value, key_heads))]
    return F.scaled_dot_product_attention(*split, is_causal=True, enable_gqa=heads != key_heads)


class Gpt2Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        width = c["n_embd"]
        self.heads = c["n_head"]
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp = nn.Module(), nn.Module()
        self.attn.c_attn, self.attn.c_proj = Conv1D(width, 3 * width), Conv1D(width, width)
        self.mlp.c_fc, self.mlp.c_proj = Conv1D(width, 4 * width), Conv1D(4 * width, width)

    def forward(self, x, _):
        heads = attend(*self.attn.c_attn(self.ln_1(x)).chunk(3, dim=-1), self.heads, self.heads)
        x = x + self.attn.c_proj(heads.transpose(1, 2).flatten(2))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


def rotated(x, angles):
    """Rotates x [.., tokens, heads * channels] in the pairs (i, i + channels / 2) of each head."""
    cosine, sine = angles
    heads = x.unflatten(-1, (-1, 2 * cosine.shape[-1]))
    a, b = heads.float().chunk(2, dim=-1)
    cosine, sine = cosine[:, None], sine[:, None]
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), dim=-1).to(x.dtype).flatten(-2)


class LlamaBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, inner, size = c["hidden_size"], c["intermediate_size"], c["head_dim"]
        self.heads, self.key_heads = c["num_attention_heads"], c["num_key_value_heads"]
        linear = lambda i, o: nn.Linear(i, o, bias=False)  # noqa: E731
        self.input_layernorm = nn.RMSNorm(width, c["rms_norm_eps"])
        self.post_attention_layernorm = nn.RMSNorm(width, c["rms_norm_eps"])
        self.self_attn, self.mlp = nn.Module(), nn.Module()
        self.self_attn.q_proj = linear(width, self.heads * size)
        self.self_attn.k_proj = linear(width, self.key_heads * size)
        self.self_attn.v_proj = linear(width, self.key_heads * size)
        self.self_attn.o_proj = linear(self.heads * size, width)
        self.mlp.gate_proj, self.mlp.up_proj = linear(width, inner), linear(width, inner)
        self.mlp.down_proj = linear(inner, width)

    def forward(self, x, angles):
        a, m, y = self.self_attn, self.mlp, self.input_layernorm(x)
        heads = attend(rotated(a.q_proj(y), angles), rotated(a.k_proj(y), angles), a.v_proj(y), self.heads,
                       self.key_heads)
        x = x + a.o_proj(heads.transpose(1, 2).flatten(2))
        y = self.post_attention_layernorm(x)
        return x + m.down_proj(F.silu(m.gate_proj(y)) * m.up_proj(y))


class Gpt2(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(c["vocab_size"], c["n_embd"]), nn.Embedding(c["n_positions"], c["n_embd"])
        self.h = nn.ModuleList(Gpt2Block(c) for _ in range(c["n_layer"]))
        self.ln_f = nn.LayerNorm(c["n_embd"])
        self.loss_of = loss_of
        self.blocks = self.h

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.h:
            x = block(x, None)
        return self.loss_of(self.ln_f(x), self.wte.weight, targets)


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.model.layers = nn.ModuleList(LlamaBlock(c) for _ in range(c["num_hidden_layers"]))
        self.model.norm = nn.RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.blocks = self.model.layers
        self.loss_of = loss_of
        powers = torch.arange(0, c["head_dim"], 2, dtype=torch.float64) / c["head_dim"]
        angles = torch.outer(torch.arange(c["max_position_embeddings"]), c["rope_theta"] ** -powers)
        self.register_buffer("cosines", angles.cos().float(), persistent=False)
        self.register_buffer("sines", angles.sin().float(), persistent=False)

    def forward(self, tokens, targets):
        x = self.model.embed_tokens(tokens)
        angles = (self.cosines[:tokens.shape[1]], self.sines[:tokens.shape[1]])
        for block in self.model.layers:
            x = block(x, angles)
        return self.loss_of(self.model.norm(x), self.model.embed_tokens.weight, targets)


def loss_of(x, classifier, targets):
    return F.cross_entropy(F.linear(x, classifier).float().flatten(0, 1), targets.flatten())


def make(config, device):
    """Makes a model with start values of a fixed seed."""
    model = (Gpt2 if config["model_type"] == "gpt2" else Llama)(config).to(device)
    generator = torch.Generator(device).manual_seed(2024)
    with torch.no_grad():
        for _, parameter in own_parameters(model):
            if parameter.dim() > 1:
                parameter.normal_(std=0.02, generator=generator)
    for name, parameter in own_parameters(model):
        if parameter.dim() == 1:
            nn.init.zeros_(parameter) if name.endswith("bias") else nn.init.ones_(parameter)
    return model


def own_parameters(model):
    """Returns the parameters with Hugging Face's names, each once, since `blocks` is a second name."""
    return [(name, p) for name, p in model.named_parameters(remove_duplicate=True) if not name.startswith("blocks.")]


def save(model, folder):
    """Writes model.safetensors in Hugging Face's format, in fp32."""
    header, end = {}, 0
    for name, parameter in own_parameters(model):
        begin, end = end, end + 4 * parameter.numel()
        header[name] = {"dtype": "F32", "shape": list(parameter.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, parameter in own_parameters(model):
            file.write(parameter.detach().float().cpu().contiguous().numpy().tobytes())
