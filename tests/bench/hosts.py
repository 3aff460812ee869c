"""Two hosts of two ranks behind a slow link: a training step over the hierarchical transport and over flat pairwise
exchange, in turns.

  hosts.py BENCH_GPT_STEP [--rate 1gbit] [--stage 2] [--json FILE]

The hosts are network namespaces of this machine (../faults/multi_node_hosts.py), so it needs root. All ranks share the
machine's cores; the link is what differs.
"""

import argparse
import pathlib
import statistics
import sys

from turns import DIRECTORY, Contestant, play, report, summary

sys.path.append(str(pathlib.Path(__file__).parent.parent / "faults"))
from multi_node_hosts import Hosts  # noqa: E402

RANKS = 4


def contestant(args, hosts, transport):
    settings = ["train_micro_batch_size_per_gpu=1", "bf16.enabled=true", "zero_core.reduce_group_size=2"]
    program = [args.program, DIRECTORY, "--model", "gpt2", "--sequence-length", str(args.tokens), "--threads", "1",
               "--stage", str(args.stage), *(w for s in settings for w in ("--set", s))]
    return Contestant(transport, hosts.mpirun(args.mpirun, RANKS, *program, exports=("ZERO_TRANSPORT",)), RANKS,
                      {"ZERO_TRANSPORT": transport})


def bytes_of_turn(hosts, contestant):
    before = hosts.bytes_sent()
    contestant.turn()
    return hosts.bytes_sent() - before


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--stage", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--json", help="append the result to this file")
    args = parser.parse_args()
    args.program = str(args.program.resolve())
    with Hosts([2, 2], args.rate) as hosts:
        with contestant(args, hosts, "hierarchical") as ours, contestant(args, hosts, "mpi") as flat:
            result = summary(*play(ours, flat, args.turns, warmup=2))
            if ours.note != flat.note:
                sys.exit(f"the losses differ: {ours.note}, {flat.note}")
            for key, one in (("ours_link_mib", ours), ("peer_link_mib", flat)):
                result[key] = statistics.median(bytes_of_turn(hosts, one) for _ in range(3)) / 2**20
        report(["hierarchical", "flat"], result, args.json)


if __name__ == "__main__":
    main()
