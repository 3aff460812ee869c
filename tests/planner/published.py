"""Compares the planner with published training runs. Usage: published.py ZERO

Prints the tables of docs/plan-validation.md: the published and the simulated step time of each row, with the error; our own
runs; and DeepSpeed's estimates of memory. In each cluster, at most one constant is fitted to one row.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile

ROWS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "published.json")
NAMED = {"model_type": "llama", "max_position_embeddings": 131072}


def planned(zero, data, row, folder):
    """Returns the planner's estimate of a published row, as its JSON object."""
    model, device = row["model"], os.path.join(folder, "device.json")
    if model in data["models"]:
        model = os.path.join(folder, "config.json")
        with open(model, "w", encoding="utf-8") as file:
            json.dump(data["models"][row["model"]] | NAMED, file)
    with open(device, "w", encoding="utf-8") as file:
        json.dump(data["clusters"][row["cluster"]]["device"], file)
    command = [zero, "plan", "--model", model, "--device", device, "--ranks", str(row["ranks"]), "--per-node", str(row.get("per_node", 8)),
               "--sequence-length", str(row["sequence"]), "--micro-batch", str(row.get("micro_batch", 1)),
               "--rows", row.get("row", "3"), "--kernels", row.get("kernels", "eager"), "--json", "-",
               "--set", f"gradient_accumulation_steps={row.get('accumulation', 1)}"]
    if "bf16" in row:
        command += ["--set", f"bf16.enabled={json.dumps(row['bf16'])}"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)[0]


def published_seconds(row):
    tokens = row["sequence"] * row.get("micro_batch", 1) * row.get("accumulation", 1)
    return row["seconds"] if "seconds" in row else tokens / row["tokens_per_second"]


def compare(zero, rows="rows"):
    """Yields each row, its published and simulated seconds, and whether a constant of its cluster is fitted to it."""
    with open(ROWS, encoding="utf-8") as file:
        data = json.load(file)
    with tempfile.TemporaryDirectory() as folder:
        for row in data[rows]:
            yield row, published_seconds(row), planned(zero, data, row, folder)["step_seconds"], row.get("reference", False)


def error_text(simulated, seconds, decides):
    percent = round(100 * (simulated / seconds - 1), 1) + 0.0  # not -0.0
    return f"{percent:+.1f} %" + (" (decides a constant)" if decides else "")


def lines(results):
    yield "| cluster | model | GPUs | tokens | kernels | published s | simulated s | error |"
    yield "|---|---|---|---|---|---|---|---|"
    for row, published, simulated, reference in results:
        tokens = row["sequence"] * row.get("micro_batch", 1) * row.get("accumulation", 1)
        yield (f"| {row['cluster']} | {row['model']} | {row['ranks']} | {tokens} | {row.get('kernels', 'eager')} | "
               f"{published:.3g} | {simulated:.3g} | {error_text(simulated, published, reference)} |")


def own_lines(results):
    yield "| nodes | strategy | dtype | measured s | simulated s | error |"
    yield "|---|---|---|---|---|---|"
    for row, measured, simulated, reference in results:
        yield (f"| {row['ranks'] // row['per_node']} | {row['row']} | {'bf16' if row['bf16'] else 'fp32'} | {measured:.3g} | "
               f"{simulated:.3g} | {error_text(simulated, measured, reference)} |")


def estimator_lines(zero):
    """Yields the table of planned model states, with slots, and DeepSpeed's estimates."""
    yield "| model | GPUs | strategy | planned GiB | DeepSpeed's estimate GiB |"
    yield "|---|---|---|---|---|"
    for model, ranks in (("gpt2-xl", 8), ("gpt2-xl", 64), ("llama-3.2-1b", 8)):
        command = [zero, "plan", "--model", model, "--ranks", str(ranks), "--rows", "2,3,2+cpu,3+cpu", "--json", "-"]
        for row in json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout):
            planned = row["bytes_per_rank"] - row["activation_bytes"]
            yield (f"| {model} | {ranks} | {row['row']} | {planned / 2**30:.2f} | "
                   f"{row['deepspeed_estimate_bytes'] / 2**30:.2f} |")


def errors(results):
    return [abs(simulated / published - 1) for _, published, simulated, reference in results if not reference]


if __name__ == "__main__":
    found = list(compare(sys.argv[1]))
    print("\n".join(lines(found)))
    print("\n" + "\n".join(own_lines(compare(sys.argv[1], "own"))))
    print("\n" + "\n".join(estimator_lines(sys.argv[1])))
    print(f"\nmedian {100 * statistics.median(errors(found)):.1f} %, largest {100 * max(errors(found)):.1f} %")
