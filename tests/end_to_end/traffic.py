"""Bytes on the wire equal the exact formula, for every stage, accumulation and world size.

usage: traffic.py MPIEXEC TRAIN_GPT
"""

import itertools
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import launch  # noqa: E402
from gpt_layout import Layout  # noqa: E402

MPIEXEC, PROGRAM = launch.absolute(sys.argv[1:3])
STEPS = 2
SHAPE = {"layers": 6, "channels": 36, "vocabulary": 259, "positions": 33}
SHARD_GRAD_OP = "SHARD_GRAD_OP"
STRATEGIES = (0, 1, 2, 3, SHARD_GRAD_OP)
OTHER_KINDS = ("all_reduce", "broadcast", "all_to_all", "barrier")
# (strategy, micro steps, gradient_sync, (dtype of compute, of the wire, of sums))
DTYPES = [(0, 1, "last", ("fp32", "bf16", "fp32")), (0, 3, "last", ("bf16", "bf16", "fp32")),
          (0, 3, "each", ("bf16", "bf16", "fp32")), (1, 3, "last", ("fp16", "fp32", "fp32")),
          (2, 3, "each", ("bf16", "fp32", "fp32")), (3, 1, "each", ("fp16", "fp16", "fp16")),
          (3, 3, "each", ("fp32", "fp16", "fp32")), (SHARD_GRAD_OP, 3, "last", ("fp16", "bf16", "fp32"))]


def expected(layout, strategy, micro_steps, sync, slots=2, b_p=4, b_c=4):
    """Returns the bytes that one rank sends per optimizer step: (all_gather, reduce_scatter)."""
    n = layout.ranks
    sync = sync or ("last" if strategy in (0, 1) else "each")
    reductions = micro_steps if sync == "each" else 1
    gathered = {0: layout.total * b_c,  # of gradients: with the reduction it is an all-reduce
                1: layout.total * b_p,
                2: layout.total * b_p,
                3: layout.gathered_in_stage_3(micro_steps, slots) * b_p,
                SHARD_GRAD_OP: (micro_steps * (layout.total - layout.persistent) + layout.persistent) * b_p}[strategy]
    return gathered * (n - 1) // n, reductions * layout.total * b_c * (n - 1) // n


def check_dtypes(model, ranks, strategy, micro_steps, sync, dtypes):
    """Gradients are sent in the dtype of the wire, and added up in a separate one: (compute, wire, sum)."""
    compute, wire, total = dtypes
    size = {"fp32": 4, "bf16": 2, "fp16": 2}
    layout = Layout(**SHAPE, ranks=ranks)
    keys = {**keys_of(strategy, micro_steps, sync, compute == "bf16"), "communication_data_type": wire,
            "data_types.grad_accum_dtype": total, "fp16.enabled": str(compute == "fp16").lower(),
            "fp16.loss_scale": 128}
    summary = train(model, ranks, keys)
    gathered, reduced = (STEPS * b for b in expected(layout, strategy, micro_steps, sync, 2, size[compute], size[wire]))
    if strategy == 0 and sync == "each" and micro_steps > 1:
        gathered = gathered // size[wire] * size[total]
    for rank in summary["ranks"]:
        sent = {kind: use["bytes"] for kind, use in rank["sent"].items()}
        require((sent["all_gather"], sent["reduce_scatter"]) == (gathered, reduced),
                f"sent {sent}, not {gathered} gathered and {reduced} reduced")
        staged = rank["memory"]["communication"]["planned"]
        summand = total if sync == "last" and micro_steps > 1 else compute
        most = max(layout.tied, layout.block, layout.positions, layout.head) * size[wire] if summand != wire else 0
        require(staged == most, f"staging of {staged} bytes, not {most}")
    return f"{(gathered + reduced) // STEPS} bytes per rank and step"


def keys_of(strategy, micro_steps, sync, bf16):
    keys = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": micro_steps,
            "zero_optimization.stage": 3 if strategy == SHARD_GRAD_OP else strategy, "bf16.enabled": str(bf16).lower()}
    if strategy == SHARD_GRAD_OP:
        keys["zero_core.reshard_after_forward"] = "false"
    if sync:
        keys["zero_core.gradient_sync"] = sync
    return keys


def train(model, ranks, keys, steps=STEPS, environment=None):
    arguments = ["--model", model, "--sequence-length", 8, "--steps", steps, *launch.settings(keys)]
    return launch.train(MPIEXEC, PROGRAM, ranks, arguments, environment).summary


def check(model, ranks, strategy, micro_steps, sync=None, bf16=False, extra=None, slots=2, environment=None):
    """Checks all ranks against the exact formula; returns the figures of rank 0."""
    extra = extra or {}
    threshold = extra.get("zero_optimization.stage3_param_persistence_threshold", 0)
    layout = Layout(**SHAPE, ranks=ranks, persistence_threshold=threshold)
    summary = train(model, ranks, {**keys_of(strategy, micro_steps, sync, bf16), **extra}, environment=environment)
    size = 2 if bf16 else 4
    gathered, reduced = (STEPS * b for b in expected(layout, strategy, micro_steps, sync, slots, size, size))
    require(summary["parameter_count"] == layout.parameters, f"{summary['parameter_count']} parameters")
    for rank in summary["ranks"]:
        sent = {kind: use["bytes"] for kind, use in rank["sent"].items()}
        require(sent["all_gather"] == gathered, f"gathered {sent['all_gather']} bytes, not {gathered}")
        require(sent["reduce_scatter"] == reduced, f"reduced {sent['reduce_scatter']} bytes, not {reduced}")
        require(all(sent[kind] == 0 for kind in OTHER_KINDS), f"other collectives: {sent}")
    per_step = (gathered + reduced) / STEPS / size / layout.parameters / ((ranks - 1) / ranks)
    return f"{(gathered + reduced) // STEPS} bytes per rank and step, {per_step:.3f} parameters x (N-1)/N"


def require(condition, problem):
    if not condition:
        raise launch.Failed(problem)


def check_world_of_one(model):
    for strategy in STRATEGIES:
        rank = train(model, 1, keys_of(strategy, 3, None, False))["ranks"][0]
        calls = sum(use["calls"] for use in rank["sent"].values())
        require(calls == 0 and rank["control_bytes"] == 0, f"strategy {strategy}: {rank}")
    return "no collective call"


def check_control_words(model):
    """Bytes of agreement in a step must be few, and the same at every stage."""
    seen = set()
    for strategy in STRATEGIES:
        sent = [[rank["control_bytes"] for rank in train(model, 3, keys_of(strategy, 1, None, False), steps)["ranks"]]
                for steps in (1, 4)]
        seen |= {(after - before) / 3 for before, after in zip(*sent)}
    require(len(seen) == 1 and 0 < min(seen) <= 1024, f"bytes per step: {seen}")
    return f"{seen.pop():.0f} bytes per rank and step"


def main():
    cases = [(f"{ranks} ranks, {strategy}, {m} micro steps", check, (ranks, strategy, m))
             for ranks, strategy, m in itertools.product((2, 3, 4), STRATEGIES, (1, 3))]
    cases += [(f"3 ranks, {strategy}, 3 micro steps, sync {sync}", check, (3, strategy, 3, sync))
              for strategy, sync in ((0, "each"), (1, "each"), (2, "last"), (3, "last"), (SHARD_GRAD_OP, "last"))]
    cases += [("3 ranks, {}, {} micro steps, sync {}, {} over {} into {}".format(*case, *dtypes), check_dtypes,
               (3, *case, dtypes)) for *case, dtypes in DTYPES]
    cases += [(f"3 ranks, {strategy}, bf16", check, (3, strategy, 1, None, True)) for strategy in (0, 2, 3)]
    buckets = {"zero_optimization.reduce_bucket_size": 1000, "zero_optimization.allgather_bucket_size": 700}
    persistent = {"zero_optimization.stage3_param_persistence_threshold": 200}
    cases += [("small buckets", check, (3, 3, 3, None, False, buckets)),
              ("persistent parameters", check, (3, 3, 3, None, False, persistent)),
              ("SHARD_GRAD_OP, persistent parameters", check, (3, SHARD_GRAD_OP, 3, None, False, persistent)),
              ("one slot", check, (3, 3, 3, None, False, {"zero_optimization.stage3_prefetch_bucket_size": 0}, 1)),
              ("three slots", check,
               (3, 3, 3, None, False, {"zero_optimization.stage3_prefetch_bucket_size": 20000}, 3)),
              ("over MPI, stage 0", check, (3, 0, 3, None, False, None, 2, {"ZERO_TRANSPORT": "mpi"})),
              ("over MPI, stage 3", check, (3, 3, 3, None, False, None, 2, {"ZERO_TRANSPORT": "mpi"})),
              ("control words", check_control_words, ()), ("one rank", check_world_of_one, ())]
    with tempfile.TemporaryDirectory() as folder:
        model = launch.write_model(os.path.join(folder, "model.json"), SHAPE["layers"], SHAPE["channels"], 3,
                                   SHAPE["vocabulary"], SHAPE["positions"])
        launch.run_all((name, lambda _, test=test, rest=rest: test(model, *rest)) for name, test, rest in cases)


main()
