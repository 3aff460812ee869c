"""Measures the effect of wire formats on training: the mean loss of a run's last steps, against the same run without a
format, and the relative error of encoded values.

  losses.py TRAIN_GPT [WAY ...] [--seeds 6] [--ranks 2] [--steps 500] [--last 100] [--json FILE]

A way is one of WAYS below; by default all of them. Runs of one seed have the same start values and data, so that the
difference of two runs is compared: its mean over the seeds, and the standard error of that mean.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
CONFIGS = ROOT / "examples/configs"

WAYS = {
    "none": {},
    "rounding": {"gradient_predivide_factor": 3},  # other roundings of fp32, and no format
    "bf16": {"zero_core.wire.gather": "bf16", "zero_core.wire.reduce": "bf16"},
    "fp8_e4m3": {"zero_core.wire.gather": "fp8_e4m3", "zero_core.wire.reduce": "fp8_e4m3"},
    "mxfp8": {"zero_core.wire.gather": "mxfp8", "zero_core.wire.reduce": "mxfp8"},
    "qwz": {"zero_optimization.zero_quantized_weights": "true"},
    "qgz": {"zero_optimization.zero_quantized_gradients": "true"},
}


def outcome_of(args, way, seed, folder):
    """Returns the mean loss of the last steps, and the mean error of all encodings, or None."""
    log = folder / "log.jsonl"
    keys = {**WAYS[way], "zero_core.wire.max_error": 1000}  # a limit, since errors are measured only if there is one
    settings = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    command = [args.mpirun, "-n", args.ranks, "--oversubscribe", args.program, "--deepspeed_config",
               CONFIGS / "zero3.json", "--model", CONFIGS / "quickstart_model.json", "--steps", args.steps,
               "--threads", 1, "--seed", seed, "--log-json", log, *settings]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{way} with seed {seed}:\n{done.stdout}")
    steps = [row for row in map(json.loads, log.read_text().splitlines()) if "loss" in row and "step" in row]
    errors = [row["compression_error"] for row in steps if row.get("compression_error")]
    return statistics.mean(row["loss"] for row in steps[-args.last:]), statistics.mean(errors) if errors else None


def row_of(way, outcomes, plain):
    """Returns the mean loss, and of the differences in percent: mean, standard deviation, standard error."""
    losses, errors = zip(*outcomes)
    differences = [100 * (own / other - 1) for own, other in zip(losses, (loss for loss, _ in plain))]
    spread = statistics.stdev(differences) if len(differences) > 1 else 0.0
    return {"way": way, "loss": statistics.mean(losses), "difference": statistics.mean(differences),
            "deviation": spread, "standard_error": spread / len(differences) ** 0.5, "losses": losses,
            "compression_error": statistics.mean(errors) if all(errors) else 0.0}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("ways", nargs="*", choices=[[], *WAYS], metavar="WAY")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--last", type=int, default=100)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--json", type=pathlib.Path, help="write the table to this file too")
    args = parser.parse_args()
    ways = [way for way in args.ways or WAYS if way != "none"]
    found = {way: [] for way in ("none", *ways)}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, args.seeds + 1):
            for way, outcomes in found.items():
                outcomes.append(outcome_of(args, way, seed, pathlib.Path(folder)))
                print(f"seed {seed} {way:10} {outcomes[-1][0]:.4f}", file=sys.stderr, flush=True)
    rows = [row_of(way, outcomes, found["none"]) for way, outcomes in found.items()]
    print(f"{args.ranks} ranks, {args.steps} steps, {args.seeds} seeds, mean of the last {args.last}")
    for row in rows:
        print(f"{row['way']:10} {row['loss']:.4f}  {row['difference']:+.2f} % +- {row['standard_error']:.2f}"
              f"  (deviation {row['deviation']:.2f})  error {row['compression_error']:.2g}")
    if args.json:
        args.json.write_text(json.dumps(rows) + os.linesep)


if __name__ == "__main__":
    main()
