"""One rank: `run.py FOLDER FILE [NAME]...` runs the idioms of FILE.py at every stage and with plain torch, and prints a
JSON line for each idiom and stage on rank 0: the difference, or the error. All ranks share FOLDER.

FILE may be `all`, or `turn` for the idioms that are assigned to this number of ranks: at 1, 2 and 3 ranks
together each idiom runs once. With backward passes on another thread (ZERO_BACKWARD_THREAD) `turn` runs stage 0 or 3
alone, or both if stages are compared with each other."""

import importlib
import json
import os
import pathlib
import sys
import warnings

import torch
import torch.distributed as dist

import zerocore
from idioms import harness

TWO_STAGES = (0, 3)
warnings.filterwarnings("ignore")
if os.environ.get("ZERO_BACKWARD_THREAD"):
    import on_device_thread  # noqa: F401: makes backward run there


def run_once(idiom, stage, job_folder, number):
    """Returns (result, text of the error)."""
    ranks = zerocore.ranks()
    job = harness.Job(idiom, stage, ranks.rank, ranks.size, harness.shared_folder(job_folder, number))
    torch.manual_seed(7)
    try:
        result = idiom.script(job)
        job.end()
        return result, None
    except Exception as error:  # noqa: BLE001: the text is what is tested
        for engine in job.engines:
            if not job.plain:
                engine.destroy()
        return None, f"{type(error).__name__}: {error}"


def import_idioms(file):
    here = pathlib.Path(__file__).parent
    files = [file] if file not in ("all", "turn") else sorted(
        path.stem for path in here.glob("*.py") if path.stem not in ("__init__", "harness", "run"))
    for each in files:
        importlib.import_module(f"idioms.{each}")


def is_due(idiom, index, ranks):
    """Returns whether this idiom runs at this number of ranks."""
    least = 2 if idiom.refused_sharded else idiom.least_ranks
    counts = [count for count in (1, 2, 3) if count >= least]
    return counts[index % len(counts)] == ranks


def stages_of(idiom, index, file):
    if file != "turn" or not os.environ.get("ZERO_BACKWARD_THREAD"):
        return idiom.stages
    stages = TWO_STAGES[index % 2:][:1] if idiom.against_torch else TWO_STAGES
    return [stage for stage in stages if stage in idiom.stages] or idiom.stages


def main(job_folder, file, names):
    ranks = zerocore.ranks()
    dist.init_process_group("gloo", init_method=f"file://{os.path.join(job_folder, 'store')}", rank=ranks.rank,
                            world_size=ranks.size)
    import_idioms(file)
    number = 0
    for index, idiom in enumerate(harness.all_idioms()):
        if (names and idiom.name not in names) or ranks.size < idiom.least_ranks:
            continue
        if file == "turn" and not is_due(idiom, index, ranks.size):
            continue
        expected = first = None
        if idiom.against_torch:
            expected, error = run_once(idiom, None, job_folder, number := number + 1)
            if error is not None:
                raise SystemExit(f"{idiom.name} with plain torch: {error}")
        for stage in stages_of(idiom, index, file):
            result, error = run_once(idiom, stage, job_folder, number := number + 1)
            cell = {"file": idiom.file, "idiom": idiom.name, "title": idiom.title, "stage": str(stage), "ranks": ranks.size,
                    "error": error, "tolerance": idiom.tolerance, "refusal": idiom.refusal(stage, ranks.size), "of_sharded": idiom.is_refused_sharded_alone(stage),
                    "index": index}
            if result is not None:
                first = first or result
                cell["difference"], cell["at"] = harness.difference(result, expected or first)
                cell["equal_bits"] = harness.difference(result, first)[0] == 0
            if ranks.rank == 0:
                print(json.dumps(cell), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
