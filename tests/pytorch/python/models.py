"""Small models of many architectures. Each is (module, a function that makes its loss from a callable of the
module)."""

import os

import torch
from torch import nn
from torch.nn import functional

os.environ["HF_HUB_OFFLINE"] = "1"
VOCABULARY = 97


def _tokens(batch=2, length=12):
    return torch.randint(0, VOCABULARY, (batch, length))


def _language_model(call):
    tokens = _tokens()
    return call(input_ids=tokens, labels=tokens).loss


class Block(nn.Module):
    """A residual block whose frozen gain belongs to the block itself."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 3 * width + 1), nn.Linear(3 * width + 1, width)
        self.gain = nn.Parameter(torch.full((width,), 0.7), requires_grad=False)

    def forward(self, x):
        return x + self.gain * self.down(functional.gelu(self.up(self.norm(x))))


class TiedTransformer(nn.Module):
    def __init__(self, width=18, blocks=3):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(blocks)])
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        hidden = self.table(x)
        for block in self.blocks:
            hidden = block(hidden)
        return functional.cross_entropy(self.head(hidden).flatten(0, 1), x.flatten())


class SharedLayers(nn.Module):
    """Two layers that are used five times in all."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(9, 13), nn.Linear(13, 1)
        self.layers = nn.ModuleList([nn.Linear(13, 13) for _ in range(2)])

    def forward(self, x):
        hidden = self.first(x)
        for index in (0, 1, 0, 1, 1):
            hidden = torch.tanh(self.layers[index](hidden))
        return self.last(hidden).pow(2).mean()


class Adversary(nn.Module):
    """A discriminator whose inputs alternate between tensors that require gradients and tensors that do not."""

    def __init__(self):
        super().__init__()
        self.generator = nn.Linear(5, 9)
        self.judge = nn.Sequential(nn.Linear(9, 13), nn.Tanh(), nn.Linear(13, 13), nn.Tanh(), nn.Linear(13, 1))

    def forward(self, noise, real):
        fake = self.generator(noise)
        return (self.judge(real) - 1).pow(2).mean() + self.judge(fake.detach()).pow(2).mean() + self.judge(fake).mean()


class DroppedLayers(nn.Module):
    """Layers that each rank drops by its own random numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(9, 13), nn.Linear(13, 1)
        self.layers = nn.ModuleList([nn.Linear(13, 13) for _ in range(4)])

    def forward(self, x):
        hidden = self.first(x)
        for layer in self.layers:
            if torch.rand(()) < 0.6:
                hidden = hidden + torch.tanh(layer(hidden))
        return self.last(hidden).pow(2).mean()


class Experts(nn.Module):
    """Each sample takes one expert; some get none."""

    def __init__(self):
        super().__init__()
        self.router, self.last = nn.Linear(9, 5), nn.Linear(9, 1)
        self.experts = nn.ModuleList([nn.Linear(9, 9) for _ in range(5)])

    def forward(self, x):
        weights = self.router(x).softmax(-1)
        weight, chosen = weights.max(-1)
        hidden = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows = (chosen == index).nonzero()[:, 0]
            if len(rows):
                hidden = hidden.index_add(0, rows, weight[rows, None] * torch.tanh(expert(x[rows])))
        return self.last(hidden).pow(2).mean()


class Member(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(4, 9, 9) / 3)

    def forward(self, x):
        return x + torch.vmap(torch.mm, in_dims=(None, 0))(x, self.weights).mean(0).tanh()


class Ensemble(nn.Module):
    """Each block is the mean of four layers that run at once by torch.vmap."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[Member() for _ in range(3)])

    def forward(self, x):
        return self.blocks(x).pow(2).mean()


class Recurrent(nn.Module):
    """A GRU, an LSTM and torch's own encoder layer, whose evaluation takes a fused path."""

    def __init__(self, width=12):
        super().__init__()
        self.table, self.head = nn.Embedding(VOCABULARY, width), nn.Linear(width, VOCABULARY)
        self.gru, self.lstm = (kind(width, width, num_layers=2, batch_first=True) for kind in (nn.GRU, nn.LSTM))
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 3, 20, batch_first=True), 2)

    def forward(self, x):
        hidden = self.table(x)
        hidden = self.encoder(hidden + self.gru(hidden)[0] + self.lstm(hidden)[0])
        return functional.cross_entropy(self.head(hidden).flatten(0, 1), x.flatten())


class Parametrized(nn.Module):
    """Weights that are functions of parameters, by torch's new and old interfaces."""

    def __init__(self):
        super().__init__()
        new, old = nn.utils.parametrizations, nn.utils
        kinds = (new.weight_norm, new.spectral_norm, new.orthogonal, old.weight_norm, old.spectral_norm)
        self.blocks = nn.ModuleList([kind(nn.Linear(9, 9)) for kind in kinds])
        self.rows = nn.ParameterList([nn.Parameter(torch.randn(9)) for _ in range(2)])

    def forward(self, x):
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        return (x * self.rows[0] + self.rows[1]).pow(2).mean()


class ResidualBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1), nn.BatchNorm2d(outputs)) if inputs != outputs else None

    def forward(self, x):
        y = self.norm2(self.conv2(functional.silu(self.norm1(self.conv1(x)))))
        return functional.silu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.layer1 = nn.Sequential(ResidualBlock(8, 8), ResidualBlock(8, 12))
        self.layer2 = nn.Sequential(ResidualBlock(12, 12), ResidualBlock(12, 16))
        self.head = nn.Linear(16, 5)

    def forward(self, x, y):
        hidden = self.layer2(self.layer1(functional.silu(self.stem(x)))).mean((2, 3))
        return functional.cross_entropy(self.head(hidden), y)


def _of_transformers(name):
    import transformers as hf

    sizes = {"vocab_size": VOCABULARY, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3,
             "num_attention_heads": 4}
    grouped = {**sizes, "num_key_value_heads": 2, "max_position_embeddings": 64}
    if name == "vit":
        del sizes["vocab_size"]
        model = hf.ViTForImageClassification(hf.ViTConfig(**sizes, image_size=16, patch_size=4, num_labels=7))
        return model, lambda call: call(pixel_values=torch.randn(2, 3, 16, 16), labels=torch.randint(0, 7, (2,))).loss
    if name == "clip":
        tower = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        text = {**tower, "vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
        model = hf.CLIPModel(hf.CLIPConfig(text_config=text, projection_dim=8,
                                           vision_config={**tower, "image_size": 16, "patch_size": 8}))
        return model, lambda call: call(input_ids=_tokens(), pixel_values=torch.randn(2, 3, 16, 16), return_loss=True).loss
    if name == "whisper":
        model = hf.WhisperForConditionalGeneration(hf.WhisperConfig(
            vocab_size=VOCABULARY, num_mel_bins=8, d_model=16, encoder_layers=2, decoder_layers=2,
            encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
            max_source_positions=16, max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
            decoder_start_token_id=1))
        return model, lambda call: call(input_features=torch.randn(2, 8, 32), labels=_tokens()).loss
    if name == "mamba":
        return hf.MambaForCausalLM(hf.MambaConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2,
                                                  state_size=4)), _language_model
    if name == "t5":
        model = hf.T5ForConditionalGeneration(
            hf.T5Config(vocab_size=VOCABULARY, d_model=24, d_kv=8, d_ff=40, num_layers=3, num_heads=3,
                        decoder_start_token_id=0))
        return model, lambda call: call(input_ids=_tokens(), labels=_tokens()).loss
    if name.startswith("gpt2") or name == "lora":
        model = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=VOCABULARY, n_positions=32, n_embd=24, n_layer=3, n_head=3,
                                                 bos_token_id=0, eos_token_id=0))
        if "recomputed" in name:
            model.gradient_checkpointing_enable({"use_reentrant": name.endswith("reentrant")})
        if name == "lora":
            import peft

            model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True))
        return model, _language_model
    model = {
        "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**grouped)),
        "qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**grouped, tie_word_embeddings=True)),
        "mixtral": lambda: hf.MixtralForCausalLM(hf.MixtralConfig(**grouped, num_local_experts=4)),
        "bert": lambda: hf.BertForMaskedLM(hf.BertConfig(**sizes, max_position_embeddings=64)),
    }[name]()
    return model, _language_model


OF_TORCH = {
    "tied": lambda: (TiedTransformer(), lambda call: call(_tokens())),
    "shared": lambda: (SharedLayers(), lambda call: call(torch.randn(4, 9))),
    "adversary": lambda: (Adversary(), lambda call: call(torch.randn(4, 5), torch.randn(4, 9))),
    "dropped": lambda: (DroppedLayers(), lambda call: call(torch.randn(4, 9))),
    "experts": lambda: (Experts(), lambda call: call(torch.randn(4, 9))),
    "recurrent": lambda: (Recurrent(), lambda call: call(_tokens())),
    "parametrized": lambda: (Parametrized(), lambda call: call(torch.randn(4, 9))),
    "resnet": lambda: (ResNet(), lambda call: call(torch.randn(3, 3, 10, 10), torch.randint(0, 5, (3,)))),
}
OF_TRANSFORMERS = ["gpt2", "gpt2-recomputed", "gpt2-recomputed-reentrant", "llama", "qwen2", "bert", "vit", "t5",
                   "mixtral"]
OF_PEFT = ["lora"]


def make(name):
    torch.manual_seed(7)
    model, loss = OF_TORCH[name]() if name in OF_TORCH else _of_transformers(name)
    return model.train(), loss
