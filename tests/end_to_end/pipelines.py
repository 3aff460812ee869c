"""Pipelines of train_gpt: the bits of a run without stages, checkpoints of any grid, and faults of a stage.

usage: pipelines.py MPIEXEC TRAIN_GPT
"""

import json
import os
import pathlib
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import launch  # noqa: E402

MPIEXEC, PROGRAM = launch.absolute(sys.argv[1:3])
STEPS = 5

# A separate classifier, so that only the last norm is shared by stages; no size is a multiple of another.
LLAMA = {"model_type": "llama", "num_hidden_layers": 5, "hidden_size": 21, "num_attention_heads": 6,
         "num_key_value_heads": 3, "head_dim": 10, "intermediate_size": 37, "vocab_size": 259,
         "max_position_embeddings": 17, "attention_bias": True, "mlp_bias": True}
GPIPE = {"zero_core.pipeline.schedule": "gpipe"}
UNIFORM = {"pipeline.partition": "uniform"}
INTERLEAVED = {"zero_core.pipeline.schedule": "interleaved", "zero_core.pipeline.chunks": 2}
BREADTH_FIRST = {"zero_core.pipeline.schedule": "breadth_first", "zero_core.pipeline.chunks": 3}

# ((data ranks, ZeRO stage, dtype, micro steps, further keys), pipelines of that run: (stages, keys, environment))
GROUPS = [
    ((1, 0, "fp32", 8, {}), [(2, INTERLEAVED, {}), (4, GPIPE, {}), (7, {}, {})]),
    ((1, 3, "bf16", 9, {}), [(2, GPIPE, {}), (3, UNIFORM, {"ZERO_EXECUTOR": "worker"}), (3, INTERLEAVED, {"ZERO_TRANSPORT": "mpi"})]),
    ((2, 3, "bf16", 4, {}), [(2, {}, {}), (2, BREADTH_FIRST, {"ZERO_EXECUTOR": "worker"})]),
    ((2, 2, "fp16", 3, {}), [(2, UNIFORM, {})]),
    ((2, 1, "fp32", 4, {"zero_core.gradient_sync": "each"}), [(3, {}, {})]),
    ((4, 3, "bf16", 2, {"zero_core.shard_group_size": 2}), [(2, {}, {})]),
    ((2, 3, "bf16", 3, {"zero_core.wire.gather": "fp8_e4m3"}), [(2, {}, {})]),
]


def arguments(model, stage, dtype, micro_steps, keys, steps=STEPS):
    common = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": micro_steps or "auto",
              "bf16.enabled": str(dtype == "bf16").lower(), "fp16.enabled": str(dtype == "fp16").lower(),
              "fp16.initial_scale_power": 10, "fp16.loss_scale_window": 3, "gradient_clipping": 1.0, "optimizer.type": "AdamW",
              "optimizer.params.lr": 0.003, "optimizer.params.weight_decay": 0.1, "zero_optimization.stage": stage}
    return ["--model", model, "--sequence-length", 13, "--steps", steps, "--seed", 7, *launch.settings({**common, **keys})]


def train(model, ranks, stages, stage, dtype, micro_steps, keys, environment=None, more=(), steps=STEPS):
    keys = {**keys, "pipeline.stages": stages}
    return launch.train(MPIEXEC, PROGRAM, ranks * stages, [*arguments(model, stage, dtype, micro_steps, keys, steps), *more],
                        environment)


def require(condition, problem):
    if not condition:
        raise launch.Failed(problem)


def same_bits(model, group, pipelines):
    ranks, stage, dtype, micro_steps, keys = group
    plain = train(model, ranks, 1, stage, dtype, micro_steps, keys)
    require(len({step["loss_bits"] for step in plain.steps}) == STEPS, "the loss does not move")
    for number, (stages, more, environment) in enumerate(pipelines):
        recompute = ["--recompute"] if number % 2 else []
        run = train(model, ranks, stages, stage, dtype, micro_steps, {**keys, **more}, environment, recompute)
        require(f"pipeline of {stages} stages" in run.printed, run.printed)
        require(run.bits() == plain.bits(), f"{stages} stages, {more}, {environment}: {run.bits()}, not {plain.bits()}")
        held = run.summary["ranks"]
        require(len(held) == ranks * stages, f"the summary has {len(held)} ranks")
        for rank in held:
            for category, use in rank["memory"].items():
                require(use["planned"] == use["peak"], f"rank {rank['rank']}: {category} {use}")
    return f"{len(pipelines)} pipelines"


def shared_table(model):
    """GPT-2's table is in the first stage and the last: its gradient is the sum of both uses."""
    keys = {"zero_core.gradient_sync": "each"}
    runs = [train(model, 1, stages, stage, "bf16", 3, keys) for stages, stage in ((2, 0), (4, 3), (3, 2))]
    require(all(run.bits() == runs[0].bits() for run in runs), f"{[run.bits() for run in runs]}")
    plain = train(model, 1, 1, 0, "bf16", 3, keys)
    for ours, theirs in zip(runs[0].steps, plain.steps):
        require(abs(ours["loss"] - theirs["loss"]) < 1e-3 * theirs["loss"], f"{ours['loss']}, without stages {theirs['loss']}")
    return "3 pipelines"


def resumed(model, folder):
    """Checkpoints of one grid load on another, and go on with the bits of the uninterrupted run."""
    setting = (3, "bf16", 4, {})
    whole = train(model, 2, 1, *setting, steps=4).bits()[1]
    for name, (first, then) in {"1 to 2 stages": (1, 2), "2 to 3 stages": (2, 3), "2 to 1 stages": (2, 1)}.items():
        directory = ["--checkpoint", os.path.join(folder, name)]
        train(model, 2, first, *setting, more=directory, steps=2)
        run = train(model, 2, then, *setting, more=directory, steps=4)
        require(run.bits()[1] == whole, f"{name}: digest {run.bits()[1]}, uninterrupted {whole}")
    return "3 grids"


def initial_weights(model, folder):
    """Each stage reads its own tensors of a file of weights."""
    saved = os.path.join(folder, "saved")
    train(model, 1, 1, 0, "fp32", 1, {}, more=["--save-model", saved], steps=1)
    given = (3, "fp32", 2, {"zero_core.gradient_sync": "each"})
    plain, run = (train(model, 2, stages, *given, more=["--init", saved], steps=2) for stages in (1, 3))
    require(run.bits() == plain.bits(), f"{run.bits()}, without stages {plain.bits()}")
    require("does not have" not in run.printed, run.printed)
    return "as without stages"


def fault(model, folder, number, keys, code, expected):
    """A signal to a rank of the second of two stages."""
    command = [PROGRAM, "--threads", "1", *map(str, arguments(model, 3, "fp32", 4, {**keys, "pipeline.stages": 2, "steps_per_print": 1},
                                                                 10**6))]
    job = launch.Job(launch.mpirun(MPIEXEC, 4, *command), folder)
    deadline = time.monotonic() + 60
    while "step 2/" not in job.printed() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(job.ranks()[3], number)
    require(job.finish(40) in code, f"exit code {job.code}\n{job.text()}")
    if number == signal.SIGSTOP:
        job.end()
    text = job.text()
    require(all(part in text for part in expected), text)
    return "the error says so"


def rank_independent(model, folder):
    """With rank_independent any grid has the bits of one rank, also one whose last micro-batches some ranks lack, and a run that
    changes its grid on the way."""
    keys = {"zero_core.rank_independent": "true", "train_batch_size": 14}  # 7 micro-batches
    given = (3, "bf16", 0, keys)
    plain = train(model, 1, 1, *given)
    for ranks, stages in ((3, 1), (2, 2), (1, 4), (2, 3)):
        require(train(model, ranks, stages, *given).bits() == plain.bits(), f"{stages} stages of {ranks} ranks")
    for number, (ranks, stages) in enumerate(((2, 2), (3, 1), (1, 3)), 1):
        resumed = train(model, ranks, stages, *given, more=["--checkpoint", os.path.join(folder, "saved")], steps=min(2 * number, STEPS))
    require(resumed.bits()[1] == plain.bits()[1], f"resumed on other grids: {resumed.bits()[1]}, not {plain.bits()[1]}")
    return "4 grids, and 3 one after another"


def refused(model, folder):
    for ranks, more, expected in (
            (2, ["--save-model", os.path.join(folder, "saved")], "does not go with --save-model"),
            (3, [], "pipeline.stages (RuntimeOptions::pipeline_stages) is 2, which does not divide 3 ranks"),
            (2, ["--set", "zero_core.peer_copies=1"], "zero_core.peer_copies"),
            (2, ["--set", "pipeline.partition=some"], "pipeline.partition")):
        keys = {"train_micro_batch_size_per_gpu": 2, "pipeline.stages": 2}
        command = [PROGRAM, "--model", model, "--steps", "1", "--sequence-length", "13", *launch.settings(keys), *more]
        job = launch.Job(launch.mpirun(MPIEXEC, ranks, *command), folder)
        require(job.finish(60) != 0 and expected in job.text(), f"{expected}\n{job.text()}")
    return "4 settings"


def main():
    with tempfile.TemporaryDirectory() as models:
        gpt2 = launch.write_model(os.path.join(models, "gpt2.json"), 5, 21, 3, 259, 17)
        llama = os.path.join(models, "llama.json")
        pathlib.Path(llama).write_text(json.dumps(LLAMA))
        tests = [(f"{group}", lambda _, run=(group, pipelines): same_bits(llama, *run)) for group, pipelines in GROUPS]
        tests += [
            ("a table that stages share", lambda _: shared_table(gpt2)),
            ("rank_independent", lambda own: rank_independent(llama, own)),
            ("checkpoints", lambda own: resumed(llama, own)),
            ("initial weights", lambda own: initial_weights(llama, own)),
            ("kill of a rank", lambda own: fault(llama, own, signal.SIGKILL, {}, range(1, 256), ["rank 3"])),
            ("a rank that stops", lambda own: fault(llama, own, signal.SIGSTOP, {"zero_core.time_limit_seconds": 2},
                                                    range(1, 256), ["waited 2 s in"])),
            ("refused", lambda own: refused(llama, own))]
        launch.run_all(tests)


main()
