"""The cases of first_contact.py: a small model, what a script does with it, and a plain loop of torch that does the same."""

import dataclasses
import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import zerocore

VOCABULARY, CHANNELS, TOKENS, BLOCKS, MICRO, STEPS = 67, 32, 12, 3, 2, 4
ADAMW = {"lr": 3e-3, "weight_decay": 0.1}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(CHANNELS), nn.Linear(CHANNELS, 4 * CHANNELS), nn.Linear(4 * CHANNELS, CHANNELS)
        self.attention = nn.MultiheadAttention(CHANNELS, 4, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(x)))


class Cube(torch.autograd.Function):
    """A function of the program's own, the last of its unit."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x + x**3

    @staticmethod
    def backward(context, gradient):
        x, = context.saved_tensors
        return gradient * (1 + 3 * x**2)


class Model(nn.Module):
    """A small transformer with a tied head, which returns its loss."""

    def __init__(self, case):
        super().__init__()
        self.case, self.side = case, None
        self.table = nn.Embedding(VOCABULARY, CHANNELS)
        nn.init.normal_(self.table.weight, std=0.1)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(CHANNELS)
        self.register_buffer("scale", torch.full((CHANNELS,), 2.0))
        if case.frozen:
            for weight in self.blocks[:2].parameters():
                weight.requires_grad = False

    def block(self, block, x):
        if self.case.recompute:
            return checkpoint(block, x, use_reentrant=self.case.recompute == "reentrant")
        if self.case.side_stream and x.is_cuda:
            self.side = self.side or torch.cuda.Stream()
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                result = block(x)
            torch.cuda.current_stream().wait_stream(self.side)
            return result
        return block(x)

    def forward(self, tokens, targets):
        x = self.table(tokens)
        for block in self.blocks:
            x = self.block(block, x)
        if self.case.own_function:
            x = Cube.apply(x)
        x = self.norm(x) * self.scale.to(x.dtype)
        return F.cross_entropy(F.linear(x, self.table.weight).float().flatten(0, 1), targets.flatten())


@dataclasses.dataclass
class Case:
    """`group`: cases with equal digests. The other fields name what a script does."""

    name: str
    stage: int
    group: str = ""
    dtype: str = "fp32"
    accumulation: int = 1
    ranks: int = 1
    two_losses: bool = False  # two backward passes in a micro step
    one_thread: bool = False  # autograd without threads
    recompute: str = ""  # "reentrant" or "plain"
    compile: bool = False
    autocast: bool = False
    on_device_before: bool = False
    meta: bool = False
    frozen: bool = False
    side_stream: bool = False
    own_function: bool = False
    resumes_at: int = -1  # the stage of a second engine, which goes on from a checkpoint in the middle
    reads: bool = False  # whole weights, between steps
    evaluates: bool = False
    own_optimizer: bool = False
    offload: tuple = ()  # sections with device cpu
    hugging_face: str = ""  # a class of transformers

    def config(self, stage):
        zero = {"stage": stage, "stage3_param_persistence_threshold": 0}
        zero |= {section: {"device": "cpu"} for section in self.offload}
        config = {"train_micro_batch_size_per_gpu": MICRO, "gradient_accumulation_steps": self.accumulation,
                  "gradient_clipping": 1.0, "steps_per_print": 10**9, "zero_optimization": zero}
        if not self.own_optimizer:
            config["optimizer"] = {"type": "AdamW", "params": ADAMW}
        if self.dtype != "fp32":
            config[self.dtype] = {"enabled": True, **({"initial_scale_power": 8} if self.dtype == "fp16" else {})}
        if self.autocast:
            config["torch_autocast"] = {"enabled": True, "dtype": "bfloat16"}
        return config


def make_cases():
    stages = (0, 1, 2, 3)
    for dtype in ("fp32", "bf16"):
        for accumulation in (1, 2):
            for stage in stages:
                group = f"{dtype}_x{accumulation}"
                yield Case(f"{group}_stage{stage}", stage, group, dtype, accumulation)
    for stage in stages:
        yield Case(f"fp16_stage{stage}", stage, "fp16", "fp16")
    for stage in (0, 3):
        yield Case(f"two_losses_stage{stage}", stage, "two_losses", "bf16", 2, two_losses=True)
        yield Case(f"on_device_before_stage{stage}", stage, "bf16_x1", "bf16", on_device_before=True)
        yield Case(f"frozen_stage{stage}", stage, "frozen", frozen=True)
        yield Case(f"autocast_stage{stage}", stage, "autocast", autocast=True)
        yield Case(f"own_optimizer_stage{stage}", stage, "fp32_x1", own_optimizer=True)
        yield Case(f"offload_optimizer_stage{stage}", stage, "", "bf16", offload=("offload_optimizer",))
        yield Case(f"llama_stage{stage}", stage, "llama", "bf16", hugging_face="LlamaForCausalLM")
        yield Case(f"gpt2_stage{stage}", stage, "gpt2", "bf16", 2, hugging_face="GPT2LMHeadModel")
    yield Case("one_thread", 3, "bf16_x2", "bf16", 2, one_thread=True)
    yield Case("recompute", 3, "bf16_x1", "bf16", recompute="plain")
    yield Case("recompute_reentrant", 3, "bf16_x1", "bf16", recompute="reentrant")
    yield Case("compiled_blocks", 3, "", compile=True)
    yield Case("meta", 3, meta=True)
    yield Case("side_stream", 3, "bf16_x1", "bf16", side_stream=True)
    yield Case("own_function", 3, own_function=True)
    yield Case("resumed", 3, "bf16_x2", "bf16", 2, resumes_at=3)
    yield Case("resumed_at_stage1", 3, "bf16_x2", "bf16", 2, resumes_at=1)
    yield Case("reads_weights", 3, "bf16_x1", "bf16", reads=True)
    yield Case("evaluates", 3, "bf16_x1", "bf16", evaluates=True)
    yield Case("offload_param", 3, "", "bf16", offload=("offload_optimizer", "offload_param"))
    for ranks in (2, 4):
        for stage in stages:
            yield Case(f"torchrun{ranks}_stage{stage}", stage, f"torchrun{ranks}", "bf16", ranks=ranks)


CASES = {case.name: case for case in make_cases()}


def make_model(case):
    torch.manual_seed(7)
    if not case.hugging_face:
        return Model(case)
    import transformers
    size = {"vocab_size": VOCABULARY, "use_cache": False}
    if case.hugging_face == "GPT2LMHeadModel":
        config = transformers.GPT2Config(n_layer=2, n_head=4, n_embd=CHANNELS, n_positions=TOKENS, resid_pdrop=0.0,
                                         embd_pdrop=0.0, attn_pdrop=0.0, **size)
    else:
        config = transformers.LlamaConfig(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                          hidden_size=CHANNELS, intermediate_size=64, **size)
    return getattr(transformers, case.hugging_face)(config).train()


def batch_of(step, micro, rank, device):
    generator = torch.Generator().manual_seed(1000 * step + 10 * micro + rank)
    tokens = torch.randint(0, VOCABULARY, (MICRO, TOKENS + 1), generator=generator).to(device)
    return tokens[:, :-1], tokens[:, 1:]


def losses_of(case, model, batch):
    """The losses of a micro step, each with a backward pass of its own; their sum counts."""
    def loss(tokens, targets):
        return model(input_ids=tokens, labels=tokens).loss if case.hugging_face else model(tokens, targets)
    if case.two_losses:
        halves = zip(*(part.chunk(2) for part in batch))
        return [(lambda half=half: loss(*half) / 2) for half in halves]
    return [lambda: loss(*batch)]


def train_plain(case, device):
    """Returns the losses of one process that has the samples of all ranks. In 16 bits the weights that are updated are
    fp32, as in mixed precision."""
    model = make_model(case).to(device)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[case.dtype]
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    masters = [weight.detach().clone() for weight in weights]
    model.to(dtype)
    optimizer = torch.optim.AdamW(masters, **ADAMW)
    shown = []
    for step in range(STEPS):
        total = 0.0
        for micro in range(case.accumulation):
            for rank in range(case.ranks):
                with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=case.autocast):
                    losses = [loss() for loss in losses_of(case, model, batch_of(step, micro, rank, device))]
                (sum(losses) / case.accumulation / case.ranks).backward()
                total += sum(loss.item() for loss in losses) / case.accumulation / case.ranks
        for master, weight in zip(masters, weights):
            master.grad, weight.grad = weight.grad.float(), None
        nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        with torch.no_grad():
            for master, weight in zip(masters, weights):
                weight.copy_(master)
        shown.append(total)
    return shown


def start(case, stage, device):
    if case.meta:
        with zerocore.zero.Init():
            model = make_model(case)
    else:
        model = make_model(case)
    if case.on_device_before:
        model.to(device)
    if case.compile:
        for block in model.blocks:
            block.compile(backend="inductor" if device != "cpu" else "aot_eager")
    options = {}
    if case.own_optimizer:
        options["optimizer"] = torch.optim.AdamW(model.parameters(), **ADAMW)
    return zerocore.initialize(model=model, config=case.config(stage), **options)[0]


def read_weights(engine):
    """Whole weights of one module are read at once, and the state_dict of a 16-bit model."""
    with zerocore.zero.GatheredParameters(list(engine.module.blocks[0].parameters())):
        assert engine.module.blocks[0].up.weight.shape == (4 * CHANNELS, CHANNELS)
        assert torch.isfinite(engine.module.blocks[0].up.weight).all()
    assert {tuple(value.shape) for name, value in engine._zero3_consolidated_16bit_state_dict().items()
            if name.endswith("up.weight")} == {(4 * CHANNELS, CHANNELS)}


def train(case, device):
    """Returns losses, digest, the kind of device and the number of ranks, of one rank."""
    engine = start(case, case.stage, device)
    assert engine.device.type == device, f"engine.device is {engine.device}, and {device} was wanted"
    assert zerocore.get_accelerator().device_name() == device, zerocore.get_accelerator().device_name()
    shown = []
    for step in range(STEPS):
        if case.resumes_at >= 0 and step == STEPS // 2:
            with tempfile.TemporaryDirectory() as folder:
                engine.save_checkpoint(folder)
                engine.destroy()
                engine = start(case, case.resumes_at, device)
                assert engine.load_checkpoint(folder)[0], "no checkpoint was found"
        total = 0.0
        for micro in range(case.accumulation):
            for loss in losses_of(case, engine, batch_of(step, micro, engine.global_rank, engine.device)):
                with torch.autograd.set_multithreading_enabled(not case.one_thread):
                    value = loss()
                    engine.backward(value)
                total += value.item() / case.accumulation
            engine.step()
        if case.reads:
            read_weights(engine)
        if case.evaluates:
            engine.eval()
            with torch.no_grad():
                engine(*batch_of(99, 0, 0, engine.device))
            engine.train()
        shown.append(total)
    return {"losses": shown, "digest": str(engine.digest()), "ranks": engine.world_size}
