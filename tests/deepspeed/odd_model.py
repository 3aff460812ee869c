"""A model on which conversions are likely to fail: sizes that no number of ranks divides, a tied table that is not the
first parameter, buffers of three kinds, and an adapter over a base. make_checkpoints.py trains it with DeepSpeed, and
resume_rank.py continues with zerocore; neither is imported here."""

import torch

VOCABULARY, WIDTH, SAMPLES = 11, 7, 12


class Odd(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = torch.nn.Linear(WIDTH, WIDTH)
        self.base = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.embed = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mask", torch.ones(WIDTH), persistent=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        if self.training:
            with torch.no_grad():
                self.batches += 1
                self.mean.mul_(0.9).add_(0.1)
        return self.head(torch.tanh(self.base(self.shift(x)) * self.scale) * self.mask.to(x.dtype))


def make(frozen=(), base_seed=3):
    """The frozen base has values of its own seed, so a resume has to load them or find them in the model."""
    model = Odd()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(0.3 * torch.randn(value.shape, generator=generator))
        for name in frozen:
            model.get_parameter(name).copy_(
                0.3 * torch.randn(model.get_parameter(name).shape, generator=torch.Generator().manual_seed(base_seed)))
            model.get_parameter(name).requires_grad_(False)
    return model


def groups(model):
    trained = [p for p in model.parameters() if p.requires_grad]
    return [{"params": [p for p in trained if p.dim() > 1]},
            {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0.0}]


def batch(rank, ranks):
    tokens = torch.randint(0, VOCABULARY, (SAMPLES, 5), generator=torch.Generator().manual_seed(1))
    return tokens[rank * SAMPLES // ranks:(rank + 1) * SAMPLES // ranks]


def loss_of(engine, tokens):
    logits = engine(tokens[:, :-1]).float()
    return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))


def config(ranks, stage, **changes):
    return {"train_micro_batch_size_per_gpu": SAMPLES // ranks, "gradient_clipping": 1.0,
            "zero_optimization": {"stage": stage},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1, "torch_adam": True}}, **changes}
