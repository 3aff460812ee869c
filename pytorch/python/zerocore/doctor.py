"""The command `python -m zerocore.doctor`, alone or under any launcher; the function is in examination.py."""

import argparse
import json

from . import doctor, ranks


def main():
    """Examines the hosts of the job; rank 0 prints the report."""
    parser = argparse.ArgumentParser(prog="python -m zerocore.doctor", description=(
        "Report the resources of each host of a job, and problems for a training run. With torchrun: "
        "torchrun --nproc-per-node 2 -m zerocore.doctor"))
    parser.add_argument("--dir", action="append", default=[], metavar="DIRECTORY",
                        help="a directory for checkpoints or offload, tried with a small file; may repeat")
    parser.add_argument("--json", action="store_true", help="one JSON object, for other programs and bug reports")
    options = parser.parse_args()
    found = doctor(options.dir)
    if ranks().rank == 0:
        print(json.dumps(found.data, indent=1) if options.json else str(found), end="\n" if options.json else "")


if __name__ == "__main__":
    main()
