"""Times our AdamW in turns with the limit set by memory (a read-modify-write loop), torch's fused AdamW and
DeepSpeedCPUAdam.

  adamw_peers.py BENCH_ADAMW_STEP [--peers limit torch deepspeed] [--python PYTHON] [--json FILE]

fp32, one array; PYTHON is the interpreter of an environment with torch and deepspeed. Peers use as many threads as
ours.
"""

import argparse
import pathlib
import statistics
import sys

from turns import DIRECTORY, Contestant, play, report, summary

HERE = pathlib.Path(__file__).parent
UPDATE_BYTES, LIMIT_BYTES = 28, 24  # per element


def contestant(args, name, threads):
    sizes = [threads, args.elements]
    if name in ("update", "limit"):
        return Contestant(name, [args.program, DIRECTORY, name, *sizes], 1)
    return Contestant(name, [args.python, HERE / "peers/adam_peers.py", DIRECTORY, name, *sizes], 1,
                      {"OMP_NUM_THREADS": str(threads), "DS_ACCELERATOR": "cpu"})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--peers", nargs="+", choices=("limit", "torch", "deepspeed"),
                        default=["limit", "torch", "deepspeed"])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--elements", type=int, default=33_000_000)  # no power of two: such arrays share memory banks
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=21)
    parser.add_argument("--json", help="append one object per pair to this file")
    args = parser.parse_args()
    for threads in args.threads:
        with contestant(args, "update", threads) as ours:
            for name in args.peers:
                with contestant(args, name, threads) as peer:
                    mine, theirs = play(ours, peer, args.turns, steps=4)
                if name == "limit":  # per byte
                    theirs = [seconds * UPDATE_BYTES / LIMIT_BYTES for seconds in theirs]
                result = summary(mine, theirs)
                for key, seconds in (("ours_gb_s", mine), ("peer_gb_s", theirs)):
                    result[key] = UPDATE_BYTES * args.elements / statistics.median(seconds) / 1e9
                report([f"ours, threads {threads}", name], result, args.json)


if __name__ == "__main__":
    main()
