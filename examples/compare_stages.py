"""Prints one table over the log files of train_gpt, a column per run.

Usage: compare_stages.py NAME=LOG.jsonl ...   The first run is the one whose bits the others must have.
"""

import json
import sys


class Run:
    def __init__(self, argument):
        self.name, separator, path = argument.partition("=")
        if not separator:
            raise ValueError(f"{argument}: expected NAME=FILE")
        try:
            with open(path, encoding="utf-8") as file:
                records = [json.loads(line) for line in file if line.strip()]
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}: {error}") from None
        self.steps = [record for record in records if "step" in record]
        if not self.steps or "summary" not in records[-1]:
            raise ValueError(f"{path}: the run did not finish")
        self.summary = records[-1]["summary"]

    def bits(self):
        """What must not depend on the stage."""
        steps = [(s["step"], s["loss_bits"], s["grad_norm_bits"], s["skipped"]) for s in self.steps]
        return steps, self.summary["digest"]

    def tokens_per_second(self):
        # The first steps warm caches and branch predictors up.
        rates = [s["tokens_per_s"] for s in self.steps]
        rates = sorted(rates[len(rates) // 5:])
        return rates[len(rates) // 2]

    def peak(self, category):
        """Bytes of a memory category on the fullest rank."""
        return max(rank["memory"].get(category, {}).get("peak", 0) for rank in self.summary["ranks"])

    def peak_of_all(self):
        return max(sum(account["peak"] for account in rank["memory"].values())
                   for rank in self.summary["ranks"])

    def sent_per_step(self, operation):
        """Bytes a rank sends per step, mean over ranks."""
        ranks = self.summary["ranks"]
        sent = sum(rank["sent"].get(operation, {}).get("bytes", 0) for rank in ranks)
        return sent / len(ranks) / len(self.steps)


def used_keys(runs, field, measure):
    """The categories that any rank of any run uses, in the order of the files."""
    keys = {}
    for run in runs:
        for rank in run.summary["ranks"]:
            for key, value in rank[field].items():
                keys[key] = keys.get(key, False) or value[measure] > 0
    return [key for key, used in keys.items() if used]


def megabytes(count):
    return f"{count / 1e6:,.2f}"


def title(key):
    return "  " + key.replace("_", " ")


def loss_text(loss):
    return "not finite" if loss is None else f"{loss:.6f}"


def table(runs):
    rows = [["", *[run.name for run in runs]], ["memory per rank, MB"]]
    for category in used_keys(runs, "memory", "peak"):
        rows.append([title(category), *[megabytes(run.peak(category)) for run in runs]])
    rows.append(["  all", *[megabytes(run.peak_of_all()) for run in runs]])
    rows.append(["sent per rank and step, MB"])
    operations = used_keys(runs, "sent", "bytes")
    for operation in operations:
        rows.append([title(operation), *[megabytes(run.sent_per_step(operation)) for run in runs]])
    rows.append(["  all", *[megabytes(sum(map(run.sent_per_step, operations))) for run in runs]])
    rows.append(["tokens/s", *[f"{run.tokens_per_second():,.0f}" for run in runs]])
    rows.append(["final loss", *[loss_text(run.steps[-1]["loss"]) for run in runs]])
    first = runs[0].bits()
    rows.append(["bits equal", *["yes" if run.bits() == first else "NO" for run in runs]])
    return rows


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if len(sys.argv) > 1 else 10
    try:
        runs = [Run(argument) for argument in sys.argv[1:]]
        rows = table(runs)
    except (OSError, ValueError) as error:
        print(f"compare_stages: {error}", file=sys.stderr)
        return 10
    width = max(len(row[0]) for row in rows)
    for row in rows:
        print((row[0].ljust(width) + "".join(cell.rjust(13) for cell in row[1:])).rstrip())
    ranks, steps = len(runs[0].summary["ranks"]), len(runs[0].steps)
    print(f"\n{ranks} ranks, {runs[0].summary['parameter_count']:,} parameters, {steps} steps; "
          "bits equal: every loss, gradient norm, weight and moment.")
    return 0 if "NO" not in rows[-1] else 1


if __name__ == "__main__":
    sys.exit(main())
