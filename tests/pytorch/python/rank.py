"""One rank of a test of the Python package: `rank.py CASE [ARGUMENT]... [-- CASE...]...`. Rank 0 prints the lines
that the test checks."""

import io
import math
import os
import sys
import warnings

import torch

import cases
import models
import zerocore

warnings.filterwarnings("ignore")
STAGES = {"0": 0, "1": 1, "2": 2, "3": 3, "SHARD_GRAD_OP": 3}


def config(stage, accumulation=1, **more):
    core = {"gradient_sync": "each"}
    if stage == "SHARD_GRAD_OP":
        core["reshard_after_forward"] = False
    return {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": accumulation,
            "zero_optimization": {"stage": STAGES[stage]}, "zero_core": core, "gradient_clipping": 1.0,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}}, **more}


def say(*words):
    if zerocore.ranks().rank == 0:
        print(*words, flush=True)


def train(engine, loss_of, steps):
    torch.manual_seed(100 + zerocore.ranks().rank)
    losses = []
    while engine.global_steps < steps:
        loss = loss_of(engine)
        engine.backward(loss)
        engine.step()
        if engine.is_gradient_accumulation_boundary() or engine.gradient_accumulation_steps() == 1:
            losses.append(engine.last_step.loss if engine.last_step else None)
    return engine.last_step.loss, engine.last_step.grad_norm, engine.digest()


def equal_bits(dtype, accumulations, *names):
    """All stages, with each of these numbers of micro-batches."""
    more = {"bf16": {"enabled": True}} if dtype == "bf16" else {}
    for name in names:
        for accumulation in map(int, accumulations.split(",")):
            first = None
            for stage in STAGES:
                model, loss_of = models.make(name)
                engine, *_ = zerocore.initialize(model=model, config=config(stage, accumulation, **more))
                outcome = train(engine, loss_of, 2)
                engine.destroy()
                first = first or outcome
                assert outcome == first, f"{name}, accumulation {accumulation}: stage {stage} has {outcome}, not {first}"
        say(name, "equal")


def plain_loop(*names):
    """Ten steps on one rank against torch's own AdamW and clipping."""
    for name in names:
        model, loss_of = models.make(name)
        engine, *_ = zerocore.initialize(model=model, config=config("3"))
        own = []
        torch.manual_seed(100)
        for _ in range(10):
            loss = loss_of(engine)
            engine.backward(loss)
            engine.step()
            own.append((engine.last_step.loss, engine.get_global_grad_norm()))
        engine.destroy()
        model, loss_of = models.make(name)
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.01)
        torch.manual_seed(100)
        for loss_here, norm_here in own:
            for parameter in trained:  # an expert without samples has a gradient of zero, not none
                parameter.grad = torch.zeros_like(parameter)
            loss = loss_of(model)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            for here, there, tolerance in ((loss_here, loss.item(), 1e-5), (norm_here, norm.item(), 1e-4)):
                assert abs(here - there) <= tolerance * abs(there), f"{name}: {here} and {there}"
        say(name, "close")


def client(kind):
    """Two groups of a client's optimizer and a client's scheduler train as in plain torch; so does the config's
    optimizer with a client's groups."""
    def groups_of(parameters):
        parameters = list(parameters)
        return [{"params": [p for p in parameters if p.dim() > 1]},
                {"params": [p for p in parameters if p.dim() <= 1], "lr": 5e-4, "weight_decay": 0.0}]

    def make(parameters):
        groups = groups_of(parameters)
        return {"adamw": lambda: torch.optim.AdamW(groups, lr=1e-3, weight_decay=0.1),
                "adam": lambda: torch.optim.Adam(groups, lr=1e-3, weight_decay=0.1),
                "sgd": lambda: torch.optim.SGD(groups, lr=1e-2, momentum=0.9, weight_decay=0.1),
                "configured": lambda: torch.optim.AdamW(groups, lr=1e-3, weight_decay=0.1),
                "adagrad": lambda: torch.optim.Adagrad(groups, lr=1e-2)}[kind]()

    def schedule(optimizer):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 if kind == "configured" else 1 / (1 + step))

    document = config("2")
    model, loss_of = models.make("tied")
    trained = [p for p in model.parameters() if p.requires_grad]
    if kind == "configured":
        document["optimizer"]["params"]["weight_decay"] = 0.1
        engine, *_ = zerocore.initialize(model=model, model_parameters=groups_of(trained), config=document)
    else:
        del document["optimizer"]
        engine, *_ = zerocore.initialize(model=model, optimizer=make, lr_scheduler=schedule, model_parameters=trained,
                                         config=document)
    train(engine, loss_of, 5)
    values = {name: engine.read(p) for name, p in engine.module.named_parameters()}
    rates = engine.get_lr()
    model, loss_of = models.make("tied")
    trained = [p for p in model.parameters() if p.requires_grad]
    plain = make(trained)
    plain_scheduler = schedule(plain)
    torch.manual_seed(100)
    for _ in range(5):
        plain.zero_grad()
        loss_of(model).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        plain.step()
        plain_scheduler.step()
    for here, there in zip(rates, plain_scheduler.get_last_lr(), strict=True):
        assert abs(here - there) <= 1e-6 * there, (rates, plain_scheduler.get_last_lr())
    for name, parameter in model.named_parameters():
        difference = (values[name] - parameter).abs().max().item()
        assert difference < 1e-5, f"{kind}: {name} differs by {difference}"
    say("close")


def save(folder, stage):
    model, loss_of = models.make("tied")
    engine, *_ = zerocore.initialize(model=model, config=config(stage))
    train(engine, loss_of, 3)
    engine.save_checkpoint(folder, client_state={"epoch": 4})
    engine.save_16bit_model(folder)
    say(engine.digest())


def load(folder, stage):
    model, _ = models.make("tied")
    engine, *_ = zerocore.initialize(model=model, config=config(stage))
    path, state = engine.load_checkpoint(folder)
    assert path.endswith("global_step3") and state == {"epoch": 4} and engine.global_steps == 3, (path, state)
    whole = torch.load(f"{folder}/pytorch_model.bin")
    for name, parameter in engine.module.named_parameters():
        assert torch.equal(engine.read(parameter), whole[name]), name
    say(engine.digest())


def latest(folder):
    """load_checkpoint() without a tag ignores checkpoints saved without save_latest; a tag may be saved again."""
    model, loss_of = models.make("tied")
    engine, *_ = zerocore.initialize(model=model, config=config("2"))
    digests = {}

    def save(steps, **arguments):
        train(engine, loss_of, steps)
        digests[steps] = engine.digest()
        engine.save_checkpoint(folder, **arguments)

    def loads(expected, tag=None):
        path, _ = engine.load_checkpoint(folder, tag)
        assert expected is None if path is None else engine.digest() == digests[expected], (path, expected)

    save(1, tag="aside", save_latest=False)
    loads(None)
    save(2)
    loads(2)
    save(3, save_latest=False)
    with open(f"{folder}/latest", encoding="utf-8") as file:
        assert file.read().strip() == "global_step2"
    loads(2)
    loads(1, "aside")
    loads(3, "global_step3")
    save(4)
    loads(4)
    # A second save under a tag replaces the first one, as with DeepSpeed; "latest" stays what it is.
    save(5, tag="aside", save_latest=False)
    loads(4)
    loads(5, "aside")
    save(6, tag="global_step4", save_latest=False)
    loads(6)
    save(7, tag="aside")
    loads(7)
    say("latest")


def background(folder):
    """A save in the background is committed by later steps, or by a call that waits for it."""
    model, loss_of = models.make("tied")
    engine, *_ = zerocore.initialize(model=model, config=config("2", checkpoint={"writer": {"decoupled": True}}))
    for steps, tag in ((1, "first"), (2, "second")):
        train(engine, loss_of, steps)
        digest = engine.digest()
        assert engine.save_checkpoint(folder, tag)
        assert not os.path.exists(f"{folder}/{tag}"), "it was waited for"
    train(engine, loss_of, 3)
    path, _ = engine.load_checkpoint(folder)
    assert path.endswith("second") and engine.digest() == digest, path
    engine.save_checkpoint(folder, "aside", save_latest=False)
    with open(f"{folder}/latest", encoding="utf-8") as file:
        assert file.read().strip() == "second"
    engine.save_checkpoint(folder, "aside")
    assert engine.load_checkpoint(folder)[0].endswith("aside")
    engine.save_checkpoint(folder, "last")
    engine.destroy()
    assert os.path.exists(f"{folder}/last")
    say("saved")


def threads():
    """If OMP_NUM_THREADS is set, torch keeps its number of threads."""
    torch.set_num_threads(3)
    zerocore.initialize(model=models.make("tied")[0], config=config("0"))
    say(torch.get_num_threads())


def gathered():
    """Whole values between passes, and a change by one rank."""
    model, loss_of = models.make("tied")
    before = model.blocks[1].up.weight.detach().clone()
    engine, *_ = zerocore.initialize(model=model, config=config("3"))
    weight = model.blocks[1].up.weight
    if engine.world_size > 1:
        try:
            weight.sum()
        except RuntimeError as error:
            assert "blocks.1.up.weight is sharded at rest" in str(error), error
        else:
            raise AssertionError("a parameter at rest was read")
    with zerocore.zero.GatheredParameters(weight):
        assert torch.equal(weight, before)
        kept = weight.data.cpu()
    assert torch.equal(kept, before)
    with zerocore.zero.GatheredParameters([weight], modifier_rank=0):
        if engine.global_rank == 0:
            weight.data.fill_(0.25)
    assert zerocore.safe_get_full_fp32_param(weight).eq(0.25).all()
    zerocore.safe_set_full_fp32_param(weight, before)
    assert torch.equal(engine.read(weight), before)
    train(engine, loss_of, 1)
    assert zerocore.safe_get_full_optimizer_state(weight, "exp_avg").abs().sum() > 0
    engine.eval()
    with torch.no_grad():
        value = loss_of(engine)
    assert value.isfinite() and weight.ds_shape == before.shape
    say("gathered")


def state_dict():
    """At stage 3 a state_dict() has only names, unless all parameters are gathered."""
    for name in ("resnet", "tied"):
        check_state_dict(name)
    say("saved")


def check_state_dict(of):
    model, loss_of = models.make(of)
    engine, *_ = zerocore.initialize(model=model, config=config("3"))
    train(engine, loss_of, 1)
    try:
        torch.save(engine.module.state_dict(), io.BytesIO())
    except RuntimeError as error:
        for part in ("parameter ", " is sharded at rest", "save_16bit_model", "_zero3_consolidated_16bit_state_dict",
                     "GatheredParameters"):
            assert part in str(error), error
    else:
        assert engine.world_size == 1, "a state_dict without values was saved"
    file = io.BytesIO()
    with zerocore.zero.GatheredParameters(engine.module.parameters()):
        kept = engine.module.state_dict()
        torch.save(kept, file)
    file.seek(0)
    expected, saved = engine.module_state_dict(), torch.load(file)
    assert list(saved) == list(models.make(of)[0].state_dict())
    for state in (saved, kept):
        assert state.keys() == expected.keys() and all(torch.equal(state[name], expected[name]) for name in expected)
    engine.destroy()


def meta(folder):
    """A model without memory gets its values from a file; each rank reads its own elements."""
    model, _ = models.make("tied")
    engine, *_ = zerocore.initialize(model=model, config=config("3"))
    engine.export_model(folder)
    expected = engine.digest()
    engine.destroy()
    with torch.device("meta"):
        model = models.TiedTransformer()
    assert model.table.weight.is_meta
    engine, *_ = zerocore.initialize(model=model, config=config("3"))
    engine.load_weights(folder)
    assert engine.digest() == expected
    say("loaded")


def uneven_evaluation():
    """Each rank has a different number of batches, at each stage, and the last evaluation ends the script."""
    first = None
    for stage in STAGES:
        model, loss_of = models.make("tied")
        engine, *_ = zerocore.initialize(model=model, config=config(stage))
        losses = []
        for steps in (0, 1, 2):  # the first evaluation is also the first pass
            if steps:
                train(engine, loss_of, steps)
            engine.eval()
            with torch.no_grad():
                losses += [loss_of(engine).item() for _ in range(2 * engine.global_rank)]
            if steps < 2:
                engine.train()
        outcome = losses, engine.digest()
        first = first or outcome
        assert outcome == first, f"stage {stage} has {outcome}, not {first}"
    engine.eval()
    with torch.no_grad():
        for _ in range(2 * engine.global_rank):
            loss_of(engine)
    say("equal")


def comparison(folder):
    """The report of compare_stages(): all stages equal; and not equal for a model that differs from stage to stage."""
    def batches():
        torch.manual_seed(50 + zerocore.ranks().rank)
        return [torch.randint(0, models.VOCABULARY, (2, 12)) for _ in range(10)]

    document = config("0", 2)
    result = zerocore.compare_stages(lambda: models.make("tied")[0], batches(), (0, 2, "3", "grad_op"), config=document,
                                     report=folder)
    assert result.equal and [v["name"] for v in result.figures["variants"]] == ["stage 0", "stage 2", "stage 3", "grad_op"]
    assert document == config("0", 2)
    made = []

    def changing():
        made.append(models.make("tied")[0])
        with torch.no_grad():
            made[-1].blocks[0].up.bias[0] += len(made)
        return made[-1]

    assert not zerocore.compare_stages(changing, batches(), (0, 3), config=document).equal


def comparison_in_groups():
    """compare_stages() with groups of ranks and wire formats: encoded stages may have losses of their own."""
    torch.manual_seed(50 + zerocore.ranks().rank)
    batches = [torch.randint(0, models.VOCABULARY, (2, 12)) for _ in range(4)]
    stages = ("3", "hybrid/2", "hfsdp/2", "3+hpz/2", "3+hpz+qwz+qgz/2")
    result = zerocore.compare_stages(lambda: models.make("tied")[0], batches, stages, config=config("0", 2))
    assert result.equal
    variants = result.figures["variants"]
    assert [variant["encoded"] for variant in variants] == [False] * 4 + [True], variants
    assert variants[4]["final_loss"] != variants[0]["final_loss"], variants
    for wrong, problem in ((("3", "3+cpu"), "stage 3 + cpu needs GPUs"), (("0", "hybrid"), "lacks the ranks of a group"),
                           (("0",), "nothing to compare")):
        try:
            zerocore.compare_stages(lambda: models.make("tied")[0], batches, wrong, config=config("0", 2))
        except zerocore.ConfigError as error:
            assert problem in str(error), error
        else:
            raise AssertionError(f"{wrong} was taken")


def offloaded_comparison(folder):
    """compare_stages() with state and parameters in files: bitwise identical, and the report shows the bytes in
    files."""
    torch.manual_seed(50 + zerocore.ranks().rank)
    batches = [torch.randint(0, models.VOCABULARY, (2, 12)) for _ in range(4)]
    document = config("0", 2)
    document["zero_optimization"] |= {part: {"nvme_path": folder} for part in ("offload_optimizer", "offload_param")}
    result = zerocore.compare_stages(lambda: models.make("tied")[0], batches, ("3", "1+nvme", "2+nvme", "3+nvme"),
                                     config=document)
    assert result.equal
    in_file = {variant["name"]: {category for category, use in variant["in_file"].items() if use["peak"] > 0}
               for variant in result.figures["variants"]}
    assert in_file["stage 3"] == set(), in_file
    for stage in ("stage 1 + nvme", "stage 2 + nvme"):
        assert "optimizer_state" in in_file[stage] and "parameters" not in in_file[stage], in_file
    assert {"optimizer_state", "parameters"} <= in_file["stage 3 + nvme"], in_file


def compiled(backend):
    """Units that are compiled before or after initialize(), one of them in part."""
    first = None
    for stage in ("0", "3"):
        model, loss_of = models.make("tied")
        model.blocks[0].compile(backend=backend)
        engine, *_ = zerocore.initialize(model=model, config=config(stage))
        model.blocks[1].compile(backend=backend)
        model.blocks[2].up.compile(backend=backend)
        outcome = train(engine, loss_of, 2)
        engine.destroy()
        first = first or outcome
        assert outcome == first, f"stage {stage} has {outcome}, not {first}"
    say("equal")


def compiled_by_engine(backend):
    """engine.compile(), with the arguments of accelerate and of torch: the numbers of units that are not compiled."""
    for stage in ("0", "3"):
        outcomes = []
        for arguments in (None, {"compile_kwargs": {"dynamic": False}}, {"fullgraph": True}):
            model, loss_of = models.make("tied")
            engine, *_ = zerocore.initialize(model=model, config=config(stage))
            if arguments is not None:
                engine.compile(backend=backend, **arguments)
                assert all(block._compiled_call_impl is not None for block in model.blocks)
            outcomes.append(train(engine, loss_of, 2)[:2])
            engine.destroy()
        assert all(math.isclose(*pair, rel_tol=1e-5) for outcome in outcomes for pair in zip(outcome, outcomes[0])), outcomes
    say("equal")


def redirected():
    """forward() replaced after initialize(), as Lightning does for its steps: the pass is around all of it, and a backward
    in it ends the pass."""
    outcomes = []
    for stage in ("0", "3"):
        torch.manual_seed(7)
        model = torch.nn.ModuleDict({"blocks": torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3))),
                                     "head": torch.nn.Linear(8, 2)})
        engine, *_ = zerocore.initialize(model=model, config=config(stage))

        def loss_of(x):
            return model["head"](model["blocks"](x)).pow(2).mean()

        def trained(x):
            for _ in range(2):
                engine.backward(loss_of(x))
                engine.step()

        x, seen = torch.ones(4, 8), []
        for replaced in (loss_of, trained, loss_of):
            model.forward = replaced
            with torch.set_grad_enabled(replaced is trained):
                seen.append(engine(x))
        model.forward = loss_of
        engine.backward(engine(x))
        engine.step()
        outcomes.append((seen[0].item(), seen[2].item(), engine.digest()))
    assert outcomes[0] == outcomes[1] and outcomes[0][1] < outcomes[0][0], outcomes
    say("equal")


def transformed():
    """torch.vmap inside a unit, over its parameters."""
    first = None
    for stage in ("0", "3"):
        torch.manual_seed(7)
        engine, *_ = zerocore.initialize(model=models.Ensemble(), config=config(stage))
        outcome = train(engine, lambda call: call(torch.randn(4, 9)), 2)
        first = first or outcome
        assert outcome == first, f"stage {stage} has {outcome}, not {first}"
    say("equal")


def generation():
    """generate() of transformers, with another length on each rank: by itself, with synced_gpus, and local."""
    zerocore.init_distributed()
    first = None
    for stage in ("0", "3"):
        outcome = []
        for name in ("gpt2", "t5"):
            model, loss_of = models.make(name)
            engine, *_ = zerocore.initialize(model=model, config=config(stage))
            train(engine, loss_of, 1)
            engine.eval()
            prompt = torch.arange(4)[None] + engine.global_rank
            length = {"max_new_tokens": 3 + 2 * engine.global_rank, "do_sample": False, "eos_token_id": None,
                      "pad_token_id": 0}
            by_itself = engine.generate(prompt, **length).tolist()
            synced = engine.generate(prompt, synced_gpus=True, **length).tolist()
            with zerocore.zero.GatheredParameters(engine.parameters()):
                local = engine.generate(prompt, **length).tolist() if engine.global_rank == 1 else by_itself
            assert by_itself == synced == local, (by_itself, synced, local)
            engine.train()
            outcome.append((by_itself, train(engine, loss_of, 2)))
        first = first or outcome
        assert outcome == first, f"stage {stage} has {outcome}, not {first}"
    say("equal")


def fails(where):
    """An error on rank 1 ends all ranks, and its name is printed."""
    model, loss_of = models.make("tied")
    engine, *_ = zerocore.initialize(model=model, config=config("3"))
    train(engine, loss_of, 1)
    mine = engine.global_rank == 1
    if where == "evaluation" and not mine:
        with torch.no_grad():
            loss_of(engine)
    if where == "forward" and mine:
        model.blocks[1].register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(ValueError("a hook failed")))
    loss = loss_of(engine)
    if where == "backward" and mine:
        loss.register_hook(lambda _: (_ for _ in ()).throw(ValueError("a hook failed")))
    if where == "order" and mine:
        engine.backward(loss)
        engine.step()
        model.blocks = torch.nn.ModuleList(reversed(model.blocks))
        loss = loss_of(engine)
    engine.backward(loss)
    engine.step()
    train(engine, loss_of, 5)


def refused(what):
    model, _ = models.make("tied")
    if what == "optimizer":
        zerocore.initialize(model=model, config=config("1"), optimizer=torch.optim.RMSprop(model.parameters()))
    if what == "option":
        zerocore.initialize(model=model, config=config("1"), optimizer=torch.optim.AdamW(model.parameters(), amsgrad=True))
    if what == "compiled":
        engine, *_ = zerocore.initialize(model=torch.compile(model, backend="eager"), config=config("3"))
        models.make("tied")[1](engine)
    if what == "functional":
        engine, *_ = zerocore.initialize(model=model, config=config("0"))
        values = {"blocks.0.up.bias": torch.ones(model.blocks[0].up.bias.shape)}
        models.make("tied")[1](lambda tokens: torch.func.functional_call(model, values, tokens))
    if what == "config":
        zerocore.initialize(model=model, config={"train_batch_sise": 4})
    zerocore.ranks()


if __name__ == "__main__":
    torch.set_num_threads(1)
    cases.run(globals())
