"""One rank: `run.py FOLDER FILE [NAME]...` runs the idioms of FILE.py at every stage and with plain torch, and prints a
JSON line for each idiom and stage on rank 0: what differs, or the error. FOLDER is one that all ranks share."""

import importlib
import json
import os
import sys
import warnings

import torch
import torch.distributed as dist

import zerocore
from idioms import harness

warnings.filterwarnings("ignore")


def run_once(idiom, stage, job_folder, number):
    """(result, text of the error)."""
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


def main(job_folder, file, names):
    ranks = zerocore.ranks()
    dist.init_process_group("gloo", init_method=f"file://{os.path.join(job_folder, 'store')}", rank=ranks.rank,
                            world_size=ranks.size)
    importlib.import_module(f"idioms.{file}")
    number = 0
    for idiom in harness.all_idioms():
        if (names and idiom.name not in names) or ranks.size < idiom.least_ranks:
            continue
        expected = first = None
        if idiom.against_torch:
            expected, error = run_once(idiom, None, job_folder, number := number + 1)
            if error is not None:
                raise SystemExit(f"{idiom.name} with plain torch: {error}")
        for stage in idiom.stages:
            result, error = run_once(idiom, stage, job_folder, number := number + 1)
            cell = {"file": file, "idiom": idiom.name, "title": idiom.title, "stage": str(stage), "ranks": ranks.size,
                    "error": error, "tolerance": idiom.tolerance, "refusal": idiom.refusal(stage)}
            if result is not None:
                first = first or result
                cell["difference"], cell["at"] = harness.difference(result, expected or first)
                cell["equal_bits"] = harness.difference(result, first)[0] == 0
            if ranks.rank == 0:
                print(json.dumps(cell), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
