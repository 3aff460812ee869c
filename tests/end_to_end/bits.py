"""Stages, SHARD_GRAD_OP, executors, transports, slots and buckets change no bit of a training run.

usage: bits.py MPIEXEC TRAIN_GPT [full]
"""

import itertools
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import launch  # noqa: E402

MPIEXEC, PROGRAM = launch.absolute(sys.argv[1:3])
FULL = sys.argv[3:] == ["full"]
STEPS = 20 if FULL else 6

STAGE = "zero_optimization.stage"
SHARD_GRAD_OP = {STAGE: 3, "zero_core.reshard_after_forward": "false"}
STRATEGIES = {**{f"stage {stage}": {STAGE: stage} for stage in range(4)}, "SHARD_GRAD_OP": SHARD_GRAD_OP}

# A separate classifier, biases, grouped queries; no size is a multiple of another.
LLAMA = {"model_type": "llama", "num_hidden_layers": 5, "hidden_size": 21, "num_attention_heads": 6,
         "num_key_value_heads": 3, "head_dim": 10, "intermediate_size": 37, "vocab_size": 259,
         "max_position_embeddings": 17, "attention_bias": True, "mlp_bias": True}

# Variants of stage 3 and stage 1, since together these use all collectives, slots and buckets.
VARIANTS = {
    "worker": ({STAGE: 3}, {"ZERO_EXECUTOR": "worker"}),
    "inline": ({STAGE: 3}, {"ZERO_EXECUTOR": "inline"}),
    "stage 1, worker": ({STAGE: 1}, {"ZERO_EXECUTOR": "worker"}),
    "SHARD_GRAD_OP, worker": (SHARD_GRAD_OP, {"ZERO_EXECUTOR": "worker"}),
    "over MPI": ({STAGE: 3}, {"ZERO_TRANSPORT": "mpi"}),
    "over MPI, worker": ({STAGE: 2}, {"ZERO_TRANSPORT": "mpi", "ZERO_EXECUTOR": "worker"}),
    "small buckets": ({STAGE: 3, "zero_optimization.reduce_bucket_size": 1000,
                       "zero_optimization.allgather_bucket_size": 700}, {}),
    "stage 1, small buckets": ({STAGE: 1, "zero_optimization.reduce_bucket_size": 1000,
                                "zero_optimization.allgather_bucket_size": 700}, {}),
    "one slot": ({STAGE: 3, "zero_optimization.stage3_prefetch_bucket_size": 0}, {}),
    "three slots": ({STAGE: 3, "zero_optimization.stage3_prefetch_bucket_size": 30000}, {"ZERO_EXECUTOR": "worker"}),
    "few live": ({STAGE: 3, "zero_optimization.stage3_max_live_parameters": 1,
                  "zero_optimization.stage3_max_reuse_distance": 0}, {}),
    "DeepSpeed's keys": ({STAGE: 3, "zero_optimization.stage3_prefetch_bucket_size": 50000000,
                          "zero_optimization.stage3_max_live_parameters": 1000000000,
                          "zero_optimization.stage3_max_reuse_distance": 1000000000,
                          "zero_optimization.stage3_param_persistence_threshold": 100000},
                         {"ZERO_EXECUTOR": "worker"}),
    "small stay": ({STAGE: 3, "zero_optimization.stage3_param_persistence_threshold": 100}, {}),
}

# (ranks, dtype, micro steps, time of the reduction, with the variants), of GPT-2 and of Llama
SHORT = [(1, "fp32", 3, "each", False), (2, "bf16", 3, "each", False), (2, "fp32", 1, None, False),
         (3, "fp32", 3, "each", True), (4, "bf16", 1, None, False), (4, "fp32", 3, "last", False),
         (3, "fp16", 3, "last", False)]
SHORT_OF_LLAMA = [(1, "fp32", 3, "each"), (2, "bf16", 1, None), (3, "fp32", 3, "each"), (4, "bf16", 3, "last")]
ALL = [(ranks, dtype, *sync, True) for ranks, dtype, sync in
       itertools.product((1, 2, 3, 4), ("fp32", "bf16", "fp16"), ((1, None), (3, "each"), (3, "last")))]


def of_group(dtype, micro_steps, sync):
    common = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": micro_steps,
              "bf16.enabled": str(dtype == "bf16").lower(), "fp16.enabled": str(dtype == "fp16").lower(),
              "fp16.initial_scale_power": 10, "fp16.loss_scale_window": 3, "gradient_clipping": 1.0, "optimizer.type": "AdamW",
              "optimizer.params.lr": 0.003, "optimizer.params.weight_decay": 0.1}
    return {**common, "zero_core.gradient_sync": sync} if sync else common


def variants_at(ranks):
    """Returns the variants; one rank has only one transport."""
    return {name: variant for name, variant in VARIANTS.items() if ranks > 1 or "MPI" not in name}


def check_group(model, group):
    """Returns the number of compared runs; raises if two differ."""
    ranks, dtype, micro_steps, sync, with_variants = group
    runs = {name: (strategy, {}) for name, strategy in STRATEGIES.items()}
    if with_variants:
        runs |= variants_at(ranks)
    reference = None
    for name, (strategy, environment) in runs.items():
        arguments = ["--model", model, "--sequence-length", 13, "--steps", STEPS, "--seed", 7,
                     *launch.settings({**of_group(dtype, micro_steps, sync), **strategy})]
        run = launch.train(MPIEXEC, PROGRAM, ranks, arguments, environment)
        check_chosen(run, environment)
        bits = run.bits()
        if reference is None:
            reference = bits
            check_trained(bits, may_skip=dtype == "fp16")
        elif bits != reference:
            raise launch.Failed(f"{name} differs from stage 0: {first_difference(reference, bits)}")
    return len(runs)


def check_chosen(run, environment):
    """Checks that the environment selected the variant."""
    for value in environment.values():
        if not any(line.startswith("ranks ") and value in line for line in run.printed.splitlines()):
            raise launch.Failed(f"{environment} had no effect:\n{run.printed}")


def check_trained(bits, may_skip):
    """A growing loss scale overflows occasionally, and the stages must agree on that too."""
    steps, _ = bits
    skipped = sum(skipped for *_, skipped in steps)
    if len(steps) != STEPS or skipped > (STEPS // 4 if may_skip else 0):
        raise launch.Failed(f"{len(steps)} steps, {skipped} of them skipped")
    if len({loss for _, loss, _, _ in steps}) < STEPS // 2:
        raise launch.Failed("the loss does not move")


def first_difference(expected, found):
    for ours, theirs in zip(expected[0], found[0]):
        if ours != theirs:
            return f"(step, loss, norm, skipped) {theirs}, not {ours}"
    return f"digest {found[1]}, not {expected[1]}"


def named(model, group):
    ranks, dtype, micro_steps, sync, _ = group
    return f"{pathlib.Path(model).stem}, {ranks} ranks, {dtype}, {micro_steps} micro steps, sync {sync}"


def main():
    with tempfile.TemporaryDirectory() as folder:
        # No size is a multiple of another.
        gpt2 = launch.write_model(os.path.join(folder, "gpt2.json"), 5, 21, 3, 259, 17)
        llama = os.path.join(folder, "llama.json")
        pathlib.Path(llama).write_text(json.dumps(LLAMA))
        groups = [(gpt2, group) for group in (ALL if FULL else SHORT)]
        groups += [(llama, (*group[:4], False)) for group in (ALL if FULL else SHORT_OF_LLAMA)]
        launch.run_all((named(*run), lambda _, run=run: f"{check_group(*run)} runs are equal") for run in groups)


main()
