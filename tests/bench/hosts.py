"""Two hosts of two ranks with a slow link: steps of GPT-2 124M in bf16 in two ways, in turns.

  hosts.py BENCH_GPT_STEP [OURS:PEER ...] [--rate 1gbit] [--tokens 64] [--turns 15] [--json FILE]

A way is one of WAYS below; by default the hierarchical transport against flat pairwise exchange at stage 2. The ratio
of times is printed with that of the bytes on the link, its value if the link took all the time.

The hosts are network namespaces of this machine (../faults/multi_node_hosts.py), so it needs root. All ranks share the
machine's cores; only the link differs.
"""

import argparse
import pathlib
import statistics
import sys

from turns import DIRECTORY, Contestant, play, report, summary

sys.path.append(str(pathlib.Path(__file__).parent.parent / "faults"))
from multi_node_hosts import Hosts  # noqa: E402

RANKS = 4

STAGE_3, IN_GROUPS = ("--stage", "3"), ("--set", "zero_core.shard_group_size=2")
ENCODED = ("--set", "zero_optimization.zero_quantized_weights=true", "--set",
           "zero_optimization.zero_quantized_gradients=true")
WAYS = {
    "hierarchical": ("--stage", "2"),
    "flat": ("--stage", "2"),  # pairwise messages between all ranks
    "stage3": STAGE_3,
    "hybrid": (*STAGE_3, *IN_GROUPS),
    "hfsdp": (*STAGE_3, *IN_GROUPS, "--set", "zero_core.optimizer_over_all_ranks=true"),
    "hpz": (*STAGE_3, "--set", "zero_optimization.zero_hpz_partition_size=2"),
    "zero++": (*STAGE_3, *ENCODED, "--set", "zero_optimization.zero_hpz_partition_size=2"),
    # A stage on each host, as many samples in a step.
    "pipeline": (*STAGE_3, "--set", "pipeline.stages=2", "--set", "gradient_accumulation_steps=2"),
}


def contestant(args, hosts, way):
    settings = ["train_micro_batch_size_per_gpu=1", "bf16.enabled=true", "zero_core.reduce_group_size=2"]
    program = [args.program, DIRECTORY, "--model", "gpt2", "--sequence-length", str(args.tokens), "--threads", "1",
               *(w for s in settings for w in ("--set", s)), *WAYS[way]]
    return Contestant(way, hosts.mpirun(args.mpirun, RANKS, *program, exports=("ZERO_TRANSPORT",)), RANKS,
                      {"ZERO_TRANSPORT": "mpi" if way == "flat" else "hierarchical"})


def bytes_of_turn(hosts, contestant):
    before = hosts.bytes_sent()
    contestant.turn()
    return hosts.bytes_sent() - before


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("pairs", nargs="*", default=["hierarchical:flat"], metavar="OURS:PEER")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--json", help="append the result to this file")
    args = parser.parse_args()
    args.program = str(args.program.resolve())
    for pair in args.pairs:
        ours, peer = pair.split(":")
        with Hosts([2, 2], args.rate) as hosts, contestant(args, hosts, ours) as one, \
                contestant(args, hosts, peer) as other:
            result = summary(*play(one, other, args.turns, warmup=2))
            if {ours, peer} == {"hierarchical", "flat"} and one.note != other.note:
                sys.exit(f"the losses differ: {one.note}, {other.note}")
            for key, way in (("ours_link_mib", one), ("peer_link_mib", other)):
                result[key] = statistics.median(bytes_of_turn(hosts, way) for _ in range(3)) / 2**20
            result["ratio_of_bytes"] = result["peer_link_mib"] / result["ours_link_mib"]
        report([ours, peer], result, args.json)
        print(f"  by bytes {result['ratio_of_bytes']:.3f}", flush=True)


if __name__ == "__main__":
    main()
