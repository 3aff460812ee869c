"""One rank of the tests of pipelines: `pipelines.py CASE [ARGUMENT]...`. Rank 0 prints the lines that the test compares."""

import sys
import warnings

import torch
from torch import nn

import zerocore
from zerocore.pipe import LayerSpec, PipelineModule, TiedLayerSpec, cut_decoder
from zerocore.pipe.messages import mark_of

warnings.filterwarnings("ignore")
WIDTH, WORDS, SAMPLES, ACCUMULATION = 12, 21, 2, 3


def say(*words):
    if zerocore.ranks().rank == 0:
        print(*words, flush=True)


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WORDS, WIDTH) * 0.1)

    def forward(self, words):
        rows = nn.functional.embedding(words, self.weight)
        return rows, (words % 5 != 0)  # the mask has no gradient


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down, self.drop = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, width), nn.Linear(width, WIDTH), nn.Dropout(0.1)

    def forward(self, inputs):
        x, mask = inputs
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm(x))))) * mask.unsqueeze(-1), mask


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WORDS, WIDTH) * 0.1)

    def forward(self, x):
        return x @ self.weight.t()


def loss_of(logits, labels):
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def pipeline(stages, tied=False, method="uniform", interval=0, chunks=1):
    torch.manual_seed(3 + zerocore.ranks().rank)  # rank 0's numbers make the values
    first = TiedLayerSpec("table", Table) if tied else LayerSpec(Table)
    last = TiedLayerSpec("table", Table, forward_fn=lambda module, x: x @ module.weight.t()) if tied else LayerSpec(Head)
    layers = [first, *(LayerSpec(Block, width) for width in (8, 40, 17)), lambda inputs: inputs[0], nn.LayerNorm(WIDTH), last]
    return PipelineModule(layers, num_stages=stages, loss_fn=loss_of, partition_method=method,
                          activation_checkpoint_interval=interval, chunks=chunks)


def config(stage, **more):
    return {"train_micro_batch_size_per_gpu": SAMPLES, "gradient_accumulation_steps": ACCUMULATION, "steps_per_print": 1000,
            "zero_optimization": {"stage": stage}, "zero_core": {"gradient_sync": "each"}, "gradient_clipping": 0.3,
            "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, **more}


def batches(engine, first=0):
    """Micro-batches of lengths that differ."""
    number = first
    while True:
        numbers = torch.Generator().manual_seed(1000 * number + engine.grid.get_data_parallel_rank())
        shape = (SAMPLES, 4 + number % 2)
        yield (torch.randint(WORDS, shape, generator=numbers), torch.randint(WORDS, shape, generator=numbers))
        number += 1


def trained(engine, steps=2, first=0):
    iterator = batches(engine, first * ACCUMULATION)
    for _ in range(steps):
        loss = float(engine.train_batch(iterator))
        assert abs(loss - engine.last_step.loss) < 1e-5, (loss, engine.last_step.loss)
    evaluated = float(engine.eval_batch(iterator, num_micro_batches=2))
    return f"{engine.digest():016x} {engine.last_step.loss.hex()} {engine.last_step.grad_norm.hex()} {evaluated.hex()}"


PRECISIONS = {"fp32": {}, "bf16": {"bf16": {"enabled": True}}, "fp16": {"fp16": {"enabled": True, "initial_scale_power": 10}}}


def grid(folder, *stage_counts):
    """Each number of stages on these ranks, at each ZeRO stage, with another partition, precision and recomputation each."""
    ranks = zerocore.ranks().size
    for stages in map(int, stage_counts):
        # The sum over the uses of a tied parameter has another order without stages.
        of_tied = "tied" if stages > 1 else "tied without stages"
        for name, tied, precision, zero_stages in (("plain", False, "fp32", range(4)), ("plain", False, "bf16", (0, 3)),
                                                   ("plain", False, "fp16", (2,)), (of_tied, True, "bf16", (0, 3)),
                                                   ("frozen", False, "fp32", (1,))):
            for stage in zero_stages:
                method = ("uniform", "parameters", "type:block|table|head", "best")[stage]
                net = pipeline(stages, tied, method, interval=stage % 2)
                if name == "frozen":  # all but the last units: other stages have nothing to train
                    for path, parameter in net.named_parameters():
                        parameter.requires_grad_(int(path.split(".")[0]) > 4)
                engine, *_ = zerocore.initialize(model=net, config=config(stage, **PRECISIONS[precision]))
                say("bits", name.replace(" ", "-"), precision, ranks // stages, f"{stages} stages, ZeRO {stage}:", trained(engine))
                engine.destroy()
        for schedule, precision, stage in (("interleaved", "fp32", 3), ("breadth_first", "bf16", 0)):
            keys = {"gradient_sync": "each", "pipeline": {"schedule": schedule, "chunks": 2}}
            if 1 < stages < 4:
                engine, *_ = zerocore.initialize(model=pipeline(stages, chunks=2),
                                                 config=config(stage, zero_core=keys, **PRECISIONS[precision]))
                say("bits plain", precision, ranks // stages, f"{stages} stages, {schedule}:", trained(engine))
                engine.destroy()
        independent(ranks // stages, stages)
        engine = with_groups(pipeline(stages))
        say("bits groups fp32", ranks // stages, f"{stages} stages:", trained(engine), engine.get_lr())
        engine.destroy()
        if folder != "-" and stages * 2 == ranks:
            checkpoint(folder, stages)
            shuffled(f"{folder}/shuffled", stages)


def independent(data_ranks, stages):
    """With rank_independent 5 micro-batches have the bits of one rank, also if data ranks have different numbers of them."""
    words = torch.utils.data.TensorDataset(*torch.randint(WORDS, (2, 40, 5), generator=torch.Generator().manual_seed(1)))
    for precision, stage, chunks in (("fp32", 1, 1), ("bf16", 3, 2)):
        core = {"rank_independent": True}
        if chunks > 1 and 1 < stages < 4:
            core["pipeline"] = {"schedule": "interleaved", "chunks": chunks}
        torch.manual_seed(7)
        settings = config(stage, zero_core=core, train_batch_size=5 * SAMPLES, **PRECISIONS[precision])
        del settings["gradient_accumulation_steps"]
        engine, *_ = zerocore.initialize(model=pipeline(stages, chunks=chunks if "pipeline" in core else 1),
                                         training_data=words, config=settings)
        for _ in range(3):
            engine.train_batch()
        say("bits independent", precision, "any", f"{data_ranks} data ranks, {stages} stages:", f"{engine.digest():016x}",
            engine.last_step.loss.hex(), engine.last_step.grad_norm.hex())
        engine.destroy()


def with_groups(net):
    """A client's optimizer, of groups of which a stage may have no parameter, and its schedule."""
    named = list(net.named_parameters())
    groups = [{"params": [p for _, p in named if p.ndim > 1], "weight_decay": 0.1},
              {"params": [p for name, p in named if p.ndim == 1 and "down" in name], "lr": 1e-3},
              {"params": [p for name, p in named if p.ndim == 1 and "down" not in name]}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, weight_decay=0.0)
    settings = {key: value for key, value in config(2).items() if key != "optimizer"}
    return zerocore.initialize(model=net, optimizer=optimizer, config=settings, lr_scheduler=torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 1 / (1 + step)))[0]


def checkpoint(folder, stages):
    """Each number of stages saves after a step, and loads what the one before has saved."""
    make = lambda stage: zerocore.initialize(model=pipeline(stages), config=config(stage))[0]  # noqa: E731
    engine = make(2)
    path, client = engine.load_checkpoint(folder)
    if path is not None:
        assert client == {"stages": stages * 2}, client
        assert engine.global_steps == 1
        say("resumed", trained(engine, 1, first=1))
        engine.destroy()
        engine = make(3)
    trained(engine, 1)
    engine.save_checkpoint(folder, client_state={"stages": stages}, tag=f"of-{stages}")
    say("resumed", trained(engine, 1, first=1))
    engine.destroy()


def shuffled(folder, stages):
    """A run that resumes draws the order of its data as an uninterrupted one, and all stages of a data rank the same one."""
    words = torch.utils.data.TensorDataset(*torch.randint(WORDS, (2, 40, 5), generator=torch.Generator().manual_seed(1)))
    losses = []
    for resumes in (False, True):
        engine, *_ = zerocore.initialize(model=pipeline(stages), config=config(1))
        torch.manual_seed(engine.grid.get_data_parallel_rank())
        for step in range(resumes, 3):
            if step == 1:
                engine.load_checkpoint(folder, "of-1") if resumes else engine.save_checkpoint(folder, "of-1")
            engine.train_batch(iter(torch.utils.data.DataLoader(words, SAMPLES, shuffle=True)))
        losses.append(engine.last_step.loss)
        engine.destroy()
    assert losses[0] == losses[1], losses


def same_as_plain():
    """A module that one rank trains without a pipeline has the bits of its layers in stages."""
    torch.manual_seed(3)
    layers = [nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 30), nn.ReLU(inplace=True), nn.Linear(30, WORDS)]
    settings = config(1, gradient_accumulation_steps=4)
    plain, *_ = zerocore.initialize(model=nn.Sequential(*layers), config=settings)
    for number in range(4):
        torch.manual_seed(number)
        words = torch.randint(WORDS, (SAMPLES, 5))
        plain.backward(loss_of(plain(words), words))
        plain.step()
    expected = plain.last_step.loss, plain.last_step.grad_norm
    plain.destroy()
    torch.manual_seed(3)
    layers = [nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 30), nn.ReLU(inplace=True), nn.Linear(30, WORDS)]
    engine, *_ = zerocore.initialize(model=PipelineModule(nn.Sequential(*layers), num_stages=1, loss_fn=loss_of), config=settings)

    def words():
        for number in range(4):
            torch.manual_seed(number)
            batch = torch.randint(WORDS, (SAMPLES, 5))
            yield batch, batch
    engine.train_batch(words())
    assert (engine.last_step.loss, engine.last_step.grad_norm) == expected, (engine.last_step.loss, expected)
    engine.destroy()


def decoder(kind):
    import transformers
    torch.manual_seed(5)
    few = {"vocab_size": WORDS, "bos_token_id": 0, "eos_token_id": 0}
    if kind == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_positions=16, n_embd=16, n_layer=3, n_head=2, **few))
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=16, **few))


def words_and_masks():
    number = 0
    while True:
        words = torch.randint(WORDS, (SAMPLES, 6 + number % 2), generator=torch.Generator().manual_seed(number))
        mask = torch.ones_like(words)
        mask[0, -2:] = 0
        yield {"input_ids": words, "labels": words, "attention_mask": mask}
        number += 1


def decoders(*stage_counts):
    """Decoders of transformers; 0 stages: the model's own loop, with the bits of its stages (its dropout has others)."""
    for stages in map(int, stage_counts):
        for kind, stage, precision in (("llama", 0, "fp32"), ("llama", 3, "bf16"), ("gpt2", 2, "bf16")):
            more = {"gradient_accumulation_steps": 4, **PRECISIONS[precision]}
            model = decoder(kind)
            if stages == 1:  # a single stage has one run
                model = cut_decoder(model, 1, chunks=2)
            if stages > 1:
                more["pipeline"] = {"stages": stages}
            if stages > 1 and kind == "llama":
                more["zero_core"] = {"gradient_sync": "each", "pipeline": {"schedule": "interleaved", "chunks": 2}}
            if stages == 0 and kind == "gpt2":
                continue
            engine, *_ = zerocore.initialize(model=model, config=config(stage, **more))
            data = words_and_masks()
            for _ in range(2):
                if stages > 0:
                    engine.train_batch(data)
                    continue
                engine.train()
                for _ in range(4):
                    engine.backward(engine(**next(data), use_cache=False).loss)
                    engine.step()
            if stages > 0:
                loss, logits = engine.eval_batch(data, return_logits=True)
                assert engine.is_last_stage() == (logits is not None)
            name = f"{kind}-tied-{min(stages, 2)}" if kind == "gpt2" else kind
            say("bits", name, precision, 1, f"{stages} stages:", f"{engine.digest():016x}", engine.last_step.loss.hex())
            engine.destroy()


def refused(call, *parts):
    try:
        call()
    except (zerocore.Error, RuntimeError, AttributeError) as error:
        missing = [part for part in parts if part not in str(error)]
        assert not missing, f"{missing} not in: {error}"
        return
    raise AssertionError(f"no error with {parts}")


def refusals():
    """Calls on two ranks that are errors on both."""
    refused(lambda: zerocore.initialize(model=nn.Linear(2, 2), config=config(1, pipeline={"stages": 2})),
            "pipeline.stages is 2", "a Linear", "PipelineModule")
    refused(lambda: pipeline(3), "num_stages is 3, which does not divide the 2 ranks")
    refused(lambda: pipeline(2, method="profile"), "'profile'", "type:REGEX")
    refused(lambda: pipeline(2, method="type:conv"), "no layer's class matches", "Block")
    refused(lambda: pipeline(2, method=[0, 4]), "each a layer with parameters", "0, 1, 2, 3, 5, 6")
    refused(lambda: PipelineModule([LayerSpec(Head)] * 2, topology=object()), "topology")
    refused(lambda: PipelineModule([nn.ReLU(), Head()], num_stages=2), "there are 1")
    normed = PipelineModule([nn.Linear(2, 2), nn.BatchNorm1d(2)], num_stages=2)
    refused(lambda: zerocore.initialize(model=normed, config=config(1)), "running_mean", "LayerNorm")
    net = pipeline(2, method=[0, 3])
    refused(lambda: zerocore.initialize(model=net, config=config(1, pipeline={"stages": 4})), "pipeline.stages is 4", "2 stages")
    refused(lambda: pipeline(2, chunks=1.5), "chunks is 1.5; expected the number of runs")
    refused(lambda: pipeline(2, method=[0, 3], chunks=2), "the first layers of 4 runs (2 stages of 2)")
    chunks = {"pipeline": {"schedule": "interleaved", "chunks": 2}}
    refused(lambda: zerocore.initialize(model=net, config=config(1, zero_core=chunks)), "chunks is 2", "PipelineModule has 1")
    independent = {"train_batch_size": 4, "train_micro_batch_size_per_gpu": 2, "zero_core": {"rank_independent": True}}
    refused(lambda: zerocore.initialize(model=pipeline(2, tied=True), config=independent),
            "zero_core.rank_independent does not go with tied_modules.table.weight")
    engine, *_ = zerocore.initialize(model=net, config=config(1))
    for call in ("forward", "backward", "step", "save_16bit_model", "read"):
        refused(lambda: getattr(engine, call)(None), f"engine.{call}()", "pipeline")
    grid = engine.grid
    assert (grid.pp_group, grid.dp_group, grid.stage_to_global(1)) == ([0, 1], [engine.global_rank], 1), vars(grid)
    assert (engine.is_pipe_parallel, engine.is_data_parallel, engine.mpu) == (True, False, grid)
    refused(lambda: grid.get_pipe_parallel_group(), "has no get_pipe_parallel_group", "new_group(ranks) of grid.pp_group")
    refused(lambda: grid.topology(), "engine.grid has no topology", "it has data_parallel_size")
    refused(engine.train_batch, "no iterator of micro-batches")
    refused(lambda: engine.train_batch([]), "is a list", "iter()")
    refused(lambda: pipeline(1), "engines exist")
    engine.destroy()
    say("refused")


def trainer():
    """A caller of accelerate's kind."""
    call = {"__name__": "accelerate.accelerator", "zerocore": zerocore, "model": nn.Linear(2, 2), "config": config(1, pipeline={"stages": 2})}
    refused(lambda: exec("zerocore.initialize(model=model, config=config)", call), "accelerate makes this engine", "train_batch")
    say("refused")


def short(rank):
    """A rank whose iterator ends too early."""
    engine, *_ = zerocore.initialize(model=pipeline(2), config=config(3))
    data = batches(engine)
    if engine.global_rank == int(rank):
        data = iter([next(data) for _ in range(ACCUMULATION + 1)])
    engine.train_batch(data)
    engine.train_batch(data)


def other_samples():
    """The last of three stages reads other samples than the first, from the second step on."""
    engine, *_ = zerocore.initialize(model=pipeline(3), config=config(1))
    data = batches(engine)
    engine.train_batch(data)
    engine.eval_batch(data)
    shuffled = batches(engine, 6 if engine.stage_id == 2 else 4)
    for _ in range(2):
        engine.train_batch(shuffled)
    assert mark_of((torch.zeros(0), None, torch.eye(2).to_sparse())) == [[[0], 0]]


def other_shape():
    """Labels of another shape than the inputs, in the second micro-batch."""
    engine, *_ = zerocore.initialize(model=pipeline(2), config=config(2))
    data = ((words, labels[:, :-1] if number == 1 and engine.is_last_stage() else labels)
            for number, (words, labels) in enumerate(batches(engine)))
    engine.train_batch(data)


if __name__ == "__main__":
    for job in " ".join(sys.argv[1:]).split(" -- "):
        case, *arguments = job.split()
        globals()[case](*arguments)
