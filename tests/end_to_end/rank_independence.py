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

# oneDNN's kernels for AMX round otherwise for another number of rows, and so of threads.
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
MPIEXEC, PROGRAM = launch.absolute(sys.argv[1:3])
STEPS = 6
MICRO_BATCHES = 7
SHAPE = {"layers": 3, "channels": 36, "vocabulary": 259, "positions": 33}
STAGE = "zero_optimization.stage"
RECOMPUTE = "zero_core.recompute_every"
SHARD_GRAD_OP = {STAGE: 3, "zero_core.reshard_after_forward": "false"}
# (ranks, threads of each, keys, environment)
RUNS = [(1, 3, {STAGE: 3}, {}), (2, 1, {STAGE: 0}, {}), (2, 2, {STAGE: 3}, {"ZERO_EXECUTOR": "worker"}),
        (3, 1, {STAGE: 1}, {}), (3, 1, SHARD_GRAD_OP, {"ZERO_TRANSPORT": "mpi"}),
        (4, 1, {STAGE: 2}, {"ZERO_TEST_NODES": "0,0,1,1"}), (5, 1, {STAGE: 3}, {}),
        (2, 2, {STAGE: 3, RECOMPUTE: 1}, {"ZERO_EXECUTOR": "worker"}), (3, 1, {STAGE: 2, RECOMPUTE: 2}, {}),
        (4, 1, {STAGE: 3, RECOMPUTE: 3}, {"ZERO_TEST_NODES": "0,0,1,1"})]
# The same for each number of micro batches whose sum is rounded; the first run is the expected one.
GROUP = "zero_core.rank_independent_group"
GROUPS = {2: [(1, 1, {STAGE: 0}, {}), (3, 1, {STAGE: 2}, {"ZERO_TRANSPORT": "mpi"}),
              (4, 1, {STAGE: 3}, {"ZERO_TEST_NODES": "0,0,1,1"})],
          3: [(1, 1, {STAGE: 3}, {}), (6, 1, {STAGE: 0}, {"ZERO_TEST_NODES": "0,0,0,1,1,1"})]}
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


def require_traffic(run, ranks, group, node_ranks):
    """A rank sends a summand of each of its micro batches to every other rank. If each group is on one node, ranks send
    their summands inside the group, and then one sum of each group's summands to the other groups."""
    layout = Layout(**SHAPE, ranks=ranks)
    twice = group > 1 and node_ranks < ranks and node_ranks % group == 0
    for number, rank in enumerate(run.summary["ranks"]):
        own = len(range(number, MICRO_BATCHES, ranks))
        of_group = len(range(number // group * group, MICRO_BATCHES, ranks))
        if twice:
            parts = own * (ranks - ranks // group) + of_group * (ranks // group - 1)
            between = of_group * (ranks - node_ranks) // group
        else:
            parts, between = own * (ranks - 1), own * (ranks - node_ranks)
        expected = [STEPS * count * 2 * layout.total // ranks for count in (parts, between)]
        sent = rank["sent"]
        found = [sent["all_to_all"]["bytes"], sent["all_to_all"]["between_nodes"]]
        if found != expected or sent["reduce_scatter"]["bytes"] != 0:
            raise launch.Failed(f"rank {number} of {ranks} sent {sent}, not {expected} bytes of summands, the latter to "
                                "other nodes")


def check_run(model, expected, ranks, threads, keys, environment):
    run = train(model, ranks, keys, threads, environment)
    require_equal(expected, run.bits())
    nodes = environment.get("ZERO_TEST_NODES", ",".join("0" * ranks)).split(",")
    require_traffic(run, ranks, keys.get(GROUP, 1), nodes.count("0"))


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
        for group, (one_rank, *runs) in GROUPS.items():
            of_group = train(model, one_rank[0], {**one_rank[2], GROUP: group}).bits()
            if of_group == expected:
                raise launch.Failed(f"groups of {group} micro batches have no effect")
            tests += [(f"{ranks} ranks, groups of {group}, {keys} {environment}",
                       lambda _, run=(of_group, ranks, threads, {**keys, GROUP: group}, environment):
                       check_run(model, *run)) for ranks, threads, keys, environment in runs]
        chosen = train(model, 1, {STAGE: 0, "train_batch_size": 12}).bits()
        launch.run_all([*tests,
                        ("resumed on other numbers of ranks",
                         lambda own: check_parts(model, expected, own, PARTS, {})),
                        ("resumed with the batch that elasticity chose",
                         lambda own: check_parts(model, chosen, own, ELASTIC_PARTS, ELASTIC))])


main()
