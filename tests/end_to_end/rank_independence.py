"""Training runs on different numbers of ranks, threads and nodes, and resumed ones, have the bits of one rank, and send
the bytes of the formula.

usage: rank_independence.py MPIEXEC TRAIN_GPT
"""

import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import launch  # noqa: E402
from gpt_layout import Layout  # noqa: E402

MPIEXEC, PROGRAM = launch.absolute(sys.argv[1:3])
STEPS = 6
MICRO_BATCHES = 7
SHAPE = {"layers": 3, "channels": 36, "vocabulary": 259, "positions": 33}
STAGE = "zero_optimization.stage"
SHARD_GRAD_OP = {STAGE: 3, "zero_core.reshard_after_forward": "false"}
# (ranks, threads of each, keys, environment)
RUNS = [(1, 3, {STAGE: 3}, {}), (2, 1, {STAGE: 0}, {}), (2, 2, {STAGE: 3}, {"ZERO_EXECUTOR": "worker"}),
        (3, 1, {STAGE: 1}, {}), (3, 1, SHARD_GRAD_OP, {"ZERO_TRANSPORT": "mpi"}),
        (4, 1, {STAGE: 2}, {"ZERO_TEST_NODES": "0,0,1,1"}), (5, 1, {STAGE: 3}, {})]
# (ranks, stage, last step) of the parts of one run
PARTS = [(4, 1, 2), (3, 3, 4), (5, 2, STEPS)]
# On 2 ranks this chooses 6 micro batches of 2 samples, on 4 ranks it would choose 12 of 1.
ELASTIC_PARTS = [(2, 1, 2), (4, 3, 4), (5, 2, STEPS)]
ELASTIC = {"elasticity.enabled": "true", "elasticity.max_train_batch_size": 14, "elasticity.micro_batch_sizes": "[1, 2]",
           "elasticity.ignore_non_elastic_batch_info": "true"}


def train(model, ranks, keys, threads=1, environment=None, steps=STEPS, more=()):
    common = {"train_batch_size": 2 * MICRO_BATCHES, "train_micro_batch_size_per_gpu": 2,
              "gradient_accumulation_steps": "auto", "zero_core.rank_independent": "true", "bf16.enabled": "true",
              "optimizer.type": "AdamW", "optimizer.params.lr": 0.003}
    arguments = ["--model", model, "--sequence-length", 8, "--steps", steps, "--seed", 7, *more,
                 *launch.settings({**common, **keys})]
    return launch.train(MPIEXEC, PROGRAM, ranks, arguments, environment, threads=threads)


def require_equal(expected, found):
    if found != expected:
        raise launch.Failed(f"{found}, not {expected}")


def require_traffic(run, ranks):
    """A rank sends a summand of each of its micro batches to every other rank, and adds up none before."""
    layout = Layout(**SHAPE, ranks=ranks)
    for number, rank in enumerate(run.summary["ranks"]):
        own = len(range(number, MICRO_BATCHES, ranks))
        summands = STEPS * own * 2 * layout.total * (ranks - 1) // ranks
        sent = {kind: use["bytes"] for kind, use in rank["sent"].items()}
        if (sent["all_to_all"], sent["reduce_scatter"]) != (summands, 0):
            raise launch.Failed(f"rank {number} of {ranks} sent {sent}, not {summands} bytes of summands")


def check_run(model, expected, ranks, threads, keys, environment):
    run = train(model, ranks, keys, threads, environment)
    require_equal(expected, run.bits())
    require_traffic(run, ranks)


def check_parts(model, expected, folder, parts, keys):
    steps, digest = [], None
    for ranks, stage, last in parts:
        run = train(model, ranks, {STAGE: stage, **keys}, steps=last,
                    more=["--checkpoint", os.path.join(folder, "run")])
        part, digest = run.bits()
        steps += part
    require_equal(expected, (steps, digest))


def main():
    with tempfile.TemporaryDirectory() as folder:
        model = launch.write_model(os.path.join(folder, "gpt2.json"), SHAPE["layers"], SHAPE["channels"], 3,
                                   SHAPE["vocabulary"], SHAPE["positions"])
        expected = train(model, 1, {STAGE: 0}).bits()
        if len(expected[0]) != STEPS or len({loss for _, loss, _, _ in expected[0]}) < STEPS:
            raise launch.Failed(f"the loss does not move: {expected}")
        tests = [(f"{run[0]} ranks, {run[1]} threads, {run[2]} {run[3]}",
                  lambda _, run=run: check_run(model, expected, *run)) for run in RUNS]
        chosen = train(model, 1, {STAGE: 0, "train_batch_size": 12}).bits()
        launch.run_all([*tests,
                        ("resumed on other numbers of ranks",
                         lambda own: check_parts(model, expected, own, PARTS, {})),
                        ("resumed with the batch that elasticity chose",
                         lambda own: check_parts(model, chosen, own, ELASTIC_PARTS, ELASTIC))])


main()
