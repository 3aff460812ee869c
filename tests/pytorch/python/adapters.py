"""One rank: adapters of peft, `adapters.py FOLDER`. They are merged and unmerged inside of GatheredParameters, as TRL does
for its generation, at every stage; and files have the base's names, or those of the model with its adapters."""

import os
import sys

import peft
import safetensors.torch
import torch
import transformers

import zerocore


def model():
    torch.manual_seed(3)
    sizes = {"vocab_size": 61, "n_positions": 16, "n_embd": 24, "n_layer": 2, "n_head": 2}
    base = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    lora = peft.LoraConfig(r=4, target_modules=["c_attn"], init_lora_weights=False, fan_in_fan_out=True)
    return peft.get_peft_model(base, lora)


def train(stage, between):
    """The digest after two steps, with between(engine) before each."""
    net = model()
    trained = [p for p in net.parameters() if p.requires_grad]
    engine, *_ = zerocore.initialize(model=net, optimizer=torch.optim.AdamW(trained, lr=1e-2), config={
        "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}, "bf16": {"enabled": True},
        "steps_per_print": 0})
    for step in range(2):
        between(engine)
        tokens = (torch.arange(8) + step + engine.global_rank).repeat(2, 1)
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()
    digest = engine.digest()
    engine.destroy()
    return digest


def merge(engine):
    """Merges adapters as TRL does before it sends the merged values away."""
    weight = engine.module.get_parameter("base_model.model.transformer.h.0.attn.c_attn.base_layer.weight")
    with zerocore.zero.GatheredParameters(list(engine.module.parameters())):
        before = weight.detach().clone()
        engine.module.merge_adapter()
        assert not torch.equal(weight, before)
        engine.module.unmerge_adapter()
        assert not torch.equal(weight, before) and torch.allclose(weight, before, atol=0.05)  # but for rounding
    with zerocore.zero.GatheredParameters(weight):
        assert torch.equal(weight, before)


def change(engine):
    weight = engine.module.get_parameter("base_model.model.transformer.h.0.attn.c_attn.base_layer.weight")
    with zerocore.zero.GatheredParameters(list(engine.module.parameters())):
        engine.module.merge_adapter()
        engine.module.unmerge_adapter()
        weight.data[0] = 1


def load_by_each_name(folder):
    """The base from a file of either kind."""
    source = model()
    base = {name: value.clone() for name, value in source.state_dict().items() if "lora" not in name and "lm_head" not in name}
    of_base = {name.removeprefix("base_model.model.").replace(".base_layer.", "."): value for name, value in base.items()}
    digests = set()
    for kind, values in (("base", of_base), ("adapted", base)):
        path = os.path.join(folder, f"{kind}.safetensors")
        if zerocore.ranks().rank == 0:
            safetensors.torch.save_file(values, path)
        net = model()
        with torch.no_grad():
            net.get_parameter("base_model.model.transformer.wpe.weight").zero_()
        engine, *_ = zerocore.initialize(model=net, config={
            "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}, "steps_per_print": 0})
        missing = engine.load_weights(path, allow_missing="*lora_*")
        assert missing and all("lora_" in name for name in missing), missing
        weight = net.get_parameter("base_model.model.transformer.wpe.weight")
        assert torch.equal(engine.read(weight), source.get_parameter("base_model.model.transformer.wpe.weight")), kind
        digests.add(engine.digest())
        engine.destroy()
    assert len(digests) == 1, digests


load_by_each_name(sys.argv[1])
for stage in (0, 1, 2, 3):
    assert train(stage, merge) == train(stage, lambda engine: None), stage
if zerocore.ranks().size > 1:
    try:
        train(3, change)
    except zerocore.UsageError as error:
        assert "1 parameters were changed inside of the block" in str(error), error
    else:
        raise AssertionError("a change after the unmerge passed")
print("merged and unmerged", flush=True)
