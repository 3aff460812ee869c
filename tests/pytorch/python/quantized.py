"""One rank: adapters over a model in codes of bitsandbytes, as transformers loads it, `quantized.py FOLDER PART`. The codes
are frozen bytes, which ranks share at stage 3. Parts: "train" compares the losses of all stages with those of one plain
process and saves; "resume" goes on from there, on another number of ranks, and exports."""

import os
import sys

import bitsandbytes
import peft
import torch
import transformers

import zerocore
from zerocore import _native

FOLDER, PART = sys.argv[1:]
BATCH, STEPS, SAVED_AT = 6, 6, 3


def base(kind):
    """The model as from_pretrained() loads it from a file, with codes of 4 or 8 bits."""
    path = os.path.join(FOLDER, "base")
    if zerocore.ranks().rank == 0 and not os.path.exists(path):
        torch.manual_seed(1)
        transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=96, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2)).save_pretrained(path)
    zerocore.ranks().sum(0.0)
    quantization = transformers.BitsAndBytesConfig(load_in_8bit=True) if kind == "int8" else transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=kind.removesuffix("_nested"), bnb_4bit_compute_dtype=torch.float32,
        bnb_4bit_use_double_quant=kind.endswith("_nested"))
    model = transformers.AutoModelForCausalLM.from_pretrained(path, quantization_config=quantization, dtype=torch.float32,
                                                              device_map="cpu")
    torch.manual_seed(2)
    model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], lora_dropout=0,
                                                       init_lora_weights=False))
    return model.train()  # in eval mode bitsandbytes packs codes anew for some CPUs


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randint(0, 96, (BATCH, 12), generator=generator)


def optimizer_of(model):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)


def plain(kind):
    """The losses of one process."""
    model = base(kind)
    optimizer, losses = optimizer_of(model), []
    for step in range(STEPS):
        loss = model(input_ids=batch(step), labels=batch(step)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def start(kind, stage):
    model = base(kind)
    engine, *_ = zerocore.initialize(model=model, optimizer=optimizer_of(model), config={
        "train_micro_batch_size_per_gpu": BATCH // zerocore.ranks().size, "zero_optimization": {"stage": stage},
        "gradient_clipping": 0, "steps_per_print": 0})
    return engine


def train(engine, steps):
    ranks, losses = zerocore.ranks(), []
    own = BATCH // ranks.size
    for step in steps:
        tokens = batch(step)[ranks.rank * own:(ranks.rank + 1) * own]
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        losses.append(ranks.sum(loss.item()) / ranks.size)
    return losses


def codes_of(model):
    """The codes, and those scales that are as many as their blocks."""
    return dict([(name, parameter) for name, parameter in model.named_parameters() if parameter.dtype.itemsize == 1] +
                [(f"{name}.absmax", parameter.quant_state.absmax) for name, parameter in model.named_parameters()
                 if getattr(parameter, "quant_state", None) is not None])


def raw(tensor):
    return tensor.detach().cpu().contiguous().view(torch.uint8).flatten().tolist()


def check(kind, stage, engine, expected, losses):
    worst = max(abs(a - b) for a, b in zip(losses, expected))
    assert worst < 1e-6, f"{kind}, stage {stage}: losses {losses}, in one process {expected}"
    codes = codes_of(engine.module)
    assert codes and all(_native.is_at_rest(parameter) == (stage == 3 and zerocore.ranks().size > 1)
                         for parameter in codes.values()), f"{kind}, stage {stage}"
    before = codes_of(base(kind))
    for name, parameter in codes.items():
        assert raw(engine.read(parameter)) == raw(before[name]), f"{kind}, stage {stage}: {name} has other codes"


def receive(engine):
    """A server gets all weights with codes and scales, and then the changes of a step."""
    server = base("nf4")
    receiver = zerocore.WeightReceiver(server)
    for step in (STEPS, STEPS + 1):
        stream = engine.stream_changes(receiver.digest, 1 << 20)
        assert receiver.receive(stream.head, stream), step
        assert (stream.head["since"] is None) == (step == STEPS)
        for parameter, there in zip(engine.module.parameters(), server.parameters()):
            assert raw(engine.read(parameter)) == raw(there)
        train(engine, [step])


def main():
    if PART == "train":
        for kind in ("nf4", "fp4_nested", "int8"):
            expected = plain(kind)
            for stage in (0, 1, 2, 3):
                engine = start(kind, stage)
                losses = train(engine, range(SAVED_AT))
                if stage == 3 and kind == "nf4":
                    engine.save_checkpoint(FOLDER)
                losses += train(engine, range(SAVED_AT, STEPS))
                check(kind, stage, engine, expected, losses)
                engine.destroy()
    else:
        expected = plain("nf4")
        engine = start("nf4", 3)
        engine.load_checkpoint(FOLDER)
        check("nf4", 3, engine, expected[SAVED_AT:], train(engine, range(SAVED_AT, STEPS)))
        receive(engine)
        state = engine.module_state_dict()
        whole = base("nf4")
        for name, tensor in codes_of(whole).items():
            assert raw(state[name]) == raw(tensor), name
        whole.load_state_dict(state, strict=False)  # bitsandbytes loads no scales of its own there
        tokens = batch(STEPS)
        with torch.no_grad():
            own = engine(input_ids=tokens, labels=tokens).loss.item()
            assert abs(whole(input_ids=tokens, labels=tokens).loss.item() - own) < 1e-6
            merged = whole.merge_and_unload()(input_ids=tokens, labels=tokens).loss.item()
        assert abs(merged - own) < 0.05, (merged, own)  # merging rounds to 4 bits anew
    if zerocore.ranks().rank == 0:
        print(f"{PART}: bitsandbytes {bitsandbytes.__version__}")


main()
