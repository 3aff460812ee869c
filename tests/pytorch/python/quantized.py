"""One rank: adapters over a model in codes of bitsandbytes or torchao, as transformers loads it, `quantized.py FOLDER PART
LIBRARY`. The codes are frozen bytes, which ranks share at stage 3. Parts: "train" compares the losses of all stages with those
of one plain process and saves; "resume" goes on from there, on another number of ranks, and exports, after passes without training."""

import contextlib
import copy
import importlib
import io
import os
import re
import sys

import peft
import torch
import transformers

import zerocore
from zerocore import _native

FOLDER, PART, LIBRARY = sys.argv[1:]
BATCH, STEPS, SAVED_AT = 6, 6, 3
KINDS = {"bitsandbytes": ("nf4", "fp4_nested", "int8"), "torchao": ("int8_groups", "int4_as_int8", "float8")}[LIBRARY]


def quantization(kind):
    if LIBRARY == "bitsandbytes":
        return transformers.BitsAndBytesConfig(load_in_8bit=True) if kind == "int8" else transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type=kind.removesuffix("_nested"), bnb_4bit_compute_dtype=torch.float32,
            bnb_4bit_use_double_quant=kind.endswith("_nested"))
    import torchao.quantization as torchao
    if kind == "int4_opaque":
        from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig
        return transformers.TorchAoConfig(PrototypeInt4WeightOnlyConfig(group_size=32))
    return transformers.TorchAoConfig({
        "int8": lambda: torchao.Int8WeightOnlyConfig(),
        "int8_groups": lambda: torchao.Int8WeightOnlyConfig(granularity=torchao.PerGroup(32)),
        "int4_as_int8": lambda: torchao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=torchao.PerGroup(32)),
        "float8": lambda: torchao.Float8WeightOnlyConfig()}[kind]())


def bare(kind, dtype=torch.float32):
    """The model as from_pretrained() loads it from a file, with codes of 4 or 8 bits."""
    path = os.path.join(FOLDER, "base")
    if zerocore.ranks().rank == 0 and not os.path.exists(path):
        torch.manual_seed(1)
        transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=96, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2)).save_pretrained(path)
    zerocore.ranks().sum(0.0)
    return transformers.AutoModelForCausalLM.from_pretrained(path, quantization_config=quantization(kind), dtype=dtype,
                                                             device_map="cpu")


def base(kind, dtype=torch.float32):
    """The same with adapters."""
    model = bare(kind, dtype)
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


def start(stage, model, optimizer=None, **more):
    return zerocore.initialize(model=model, optimizer=optimizer, config={
        "train_micro_batch_size_per_gpu": BATCH // zerocore.ranks().size, "zero_optimization": {"stage": stage},
        "gradient_clipping": 0, "steps_per_print": 0, **more})[0]


def started(kind, stage):
    model = base(kind)
    return start(stage, model, optimizer_of(model))


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
    if LIBRARY == "torchao":
        return {f"{name}.{part}": getattr(parameter, part) for name, parameter in model.named_parameters()
                if hasattr(parameter, "__tensor_flatten__") for part in parameter.__tensor_flatten__()[0]}
    return dict([(name, parameter) for name, parameter in model.named_parameters() if parameter.dtype.itemsize == 1] +
                [(f"{name}.absmax", parameter.quant_state.absmax) for name, parameter in model.named_parameters()
                 if getattr(parameter, "quant_state", None) is not None])


def check_bytes(engine, where):
    """Codes and scales take their share on each rank at stage 3."""
    ranks, tensors = zerocore.ranks(), {id(each): each for each in (*codes_of(engine.module).values(), *(
        each for each in engine.module.parameters() if not hasattr(each, "__tensor_flatten__")))}
    parts = ranks.size if engine.zero_optimization_stage() == 3 else 1
    planned, current = map(float, re.search(r"parameters +(\S+) +(\S+)", engine.memory_table()).groups())
    excess = current - sum(each.nbytes for each in tensors.values()) / parts / 2**20
    assert planned == current and -0.001 < excess < 0.01 / parts, f"{where}: {excess} MiB more than a share"  # or aligned


def raw(tensor):
    return tensor.detach().cpu().contiguous().view(torch.uint8).flatten().tolist()


def check(kind, stage, engine, expected, losses):
    worst = max(abs(a - b) for a, b in zip(losses, expected))
    assert worst < 1e-6, f"{kind}, stage {stage}: losses {losses}, in one process {expected}"
    codes = codes_of(engine.module)
    assert codes and all(_native.is_at_rest(parameter) == (stage == 3 and zerocore.ranks().size > 1)
                         for parameter in codes.values()), f"{kind}, stage {stage}"
    check_bytes(engine, f"{kind}, stage {stage}")
    before = codes_of(base(kind))
    for name, parameter in codes.items():
        assert raw(engine.read(parameter)) == raw(before[name]), f"{kind}, stage {stage}: {name} has other codes"


def evaluate():
    """An engine in bf16 that does not train has the bits of one process, and so have a copy of its model and a pickle of that."""
    packs = LIBRARY == "bitsandbytes"  # in eval mode, anew for some CPUs
    for kind in ("nf4",) if packs else ("int8", "float8", "int4_opaque"):
        model, tokens = bare(kind, torch.bfloat16).train(packs), batch(0)
        with torch.no_grad():
            expected = model(input_ids=tokens).logits
            engine = start(3, bare(kind, torch.bfloat16).train(packs), bf16={"enabled": True})
            assert torch.equal(engine(input_ids=tokens).logits, expected), kind
            with zerocore.zero.GatheredParameters(list(engine.module.parameters())):
                copied = copy.deepcopy(engine.module)
            for each in copied.modules():
                vars(each).pop("extra_repr", None)  # transformers' own, which no pickle takes
            assert torch.equal(copied(input_ids=tokens).logits, expected), kind
            if LIBRARY == "torchao":  # a copied weight of bitsandbytes refers to the module that it was copied from
                file = io.BytesIO()
                torch.save(copied, file)
                file.seek(0)
                assert torch.equal(torch.load(file, weights_only=False)(input_ids=tokens).logits, expected), kind
        for name, tensor in codes_of(model).items():
            own = codes_of(engine.module)[name]
            assert own.dtype == tensor.dtype and raw(engine.read(own).to(tensor.dtype)) == raw(tensor), name
        if LIBRARY == "torchao":
            refuse(engine, model)
        engine.destroy()


def refuse(engine, model):
    """Errors name the parameter, and the class of another library."""
    name = "model.layers.0.self_attn.q_proj.weight"
    weight, own = engine.module.get_parameter(name), model.get_parameter(name)
    kind = type(weight).__name__
    assert type(engine.read(weight)) is type(own)
    engine.write(weight, own)
    with expected_error(f"parameter {name} is a {kind}, and the values are a Tensor"):
        engine.write(weight, torch.zeros(weight.shape))
    with expected_error(f"parameter {name}.qdata holds bytes"):
        engine.stream_weights(1 << 20, dtype=torch.float32)
    net = torch.nn.ModuleDict({"trained": torch.nn.Linear(64, 64)})
    net.trained.weight = torch.nn.Parameter(own.detach(), requires_grad=True)
    with expected_error("parameter trained.weight is a torchao.", f"{kind} and trained"):
        start(3, net, torch.optim.AdamW(net.parameters()))
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    mesh = torch.distributed.init_device_mesh("cpu", (1,))
    net.trained.weight = torch.nn.Parameter(torch.distributed.tensor.distribute_tensor(torch.ones(64, 64), mesh))
    with expected_error("parameter trained.weight is a torch.distributed.tensor.DTensor, which is sharded already"):
        start(3, net, torch.optim.AdamW(net.parameters()))
    torch.distributed.destroy_process_group()


@contextlib.contextmanager
def expected_error(*texts):
    try:
        yield
    except zerocore.UsageError as error:
        assert all(text in str(error) for text in texts), error
    else:
        raise AssertionError(f"no error with {texts}")


def receive(engine):
    """A server gets all weights with codes and scales, and then the changes of a step."""
    server = base(KINDS[0])
    receiver = zerocore.WeightReceiver(server)
    for step in (STEPS, STEPS + 1):
        stream = engine.stream_changes(receiver.digest, 1 << 20)
        assert receiver.receive(stream.head, stream), step
        assert (stream.head["since"] is None) == (step == STEPS)
        for parameter, there in zip(engine.module.parameters(), server.parameters()):
            if parameter.requires_grad:
                assert raw(engine.read(parameter)) == raw(there)
        there = codes_of(server)
        assert all(raw(engine.read(each)) == raw(there[name]) for name, each in codes_of(engine.module).items())
        train(engine, [step])


def main():
    if PART == "train":
        for kind in KINDS:
            expected = plain(kind)
            for stage in (0, 1, 2, 3):
                engine = started(kind, stage)
                losses = train(engine, range(SAVED_AT))
                if stage == 3 and kind == KINDS[0]:
                    engine.save_checkpoint(FOLDER)
                losses += train(engine, range(SAVED_AT, STEPS))
                check(kind, stage, engine, expected, losses)
                engine.destroy()
    else:
        evaluate()
        expected = plain(KINDS[0])
        engine = started(KINDS[0], 3)
        engine.load_checkpoint(FOLDER)
        check(KINDS[0], 3, engine, expected[SAVED_AT:], train(engine, range(SAVED_AT, STEPS)))
        receive(engine)
        with expected_error(f"holds bytes ({'Int8Tensor' if LIBRARY == 'torchao' else 'torch.uint8'})"):
            engine.stream_weights(1 << 20, merge_adapters=True)
        state = engine.module_state_dict()
        whole = base(KINDS[0])
        for name, tensor in codes_of(whole).items():
            name, _, part = name.rpartition(".") if LIBRARY == "torchao" else (name, "", "")
            assert raw(getattr(state[name], part) if part else state[name]) == raw(tensor), name
        whole.load_state_dict(state, strict=False)  # bitsandbytes loads no scales of its own there
        tokens = batch(STEPS)
        with torch.no_grad():
            own = engine(input_ids=tokens, labels=tokens).loss.item()
            assert abs(whole(input_ids=tokens, labels=tokens).loss.item() - own) < 1e-6
            merged = whole.merge_and_unload()(input_ids=tokens, labels=tokens).loss.item()
        assert abs(merged - own) < 0.05, (merged, own)  # merging rounds to 4 bits anew
    if zerocore.ranks().rank == 0:
        print(f"{PART}: {LIBRARY} {importlib.import_module(LIBRARY).__version__}")


main()
