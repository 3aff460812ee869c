"""train_gpt trains with configs of other projects, unchanged.

usage: real_configs.py MPIEXEC TRAIN_GPT ZERO

ZERO_DS_CONFIGS names the directory of configs; their names begin NUMBER_OWNER__REPOSITORY__. It chooses COUNT files of
different repositories that together cover every stage, both 16-bit dtypes, schedules and "auto".
"""

import json
import math
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import launch  # noqa: E402

MPIEXEC, PROGRAM, ZERO = launch.absolute(sys.argv[1:4])
COUNT, STEPS, MOST_SAMPLES = 12, 4, 64
NEEDED = {"stage 0", "stage 1", "stage 2", "stage 3", "fp16", "bf16", "auto", "WarmupLR", "WarmupDecayLR"}


def repository(file):
    return "__".join(file.name.partition("_")[2].split("__")[:2])


def explained(file, ranks):
    result = subprocess.run([ZERO, "config", "explain", str(file), "--json", "--world-size", str(ranks),
                             "--total-steps", str(STEPS)], capture_output=True, text=True, timeout=60)
    assert result.returncode in (0, 10), result
    return json.loads(result.stdout) if result.returncode == 0 else None


class Candidate:
    """A file that loads, with a number of ranks that its batch admits, and its features."""

    def __init__(self, file, ranks, config):
        values = {path: entry["value"] for path, entry in config["values"].items()}
        self.file, self.ranks, self.samples = file, ranks, config["batch"]["train_batch_size"]
        self.features = {f"stage {values['zero_optimization.stage']}"}
        self.features |= {dtype for dtype in ("fp16", "bf16") if values.get(f"{dtype}.enabled")}
        self.features |= {values["scheduler.type"]} if values["scheduler.type"] else set()
        self.wants_disk = any(values.get(f"zero_optimization.offload_{part}.device") == "nvme" for part in ("optimizer", "param"))
        self.features |= {"auto"} if any(e["source"] == "auto" for e in config["values"].values()) else set()


def candidates(directory):
    for file in sorted(directory.glob("*.json")):
        for ranks in (2, 4, 3, 1):
            config = explained(file, ranks)
            if config is not None and config["batch"]["train_batch_size"] <= MOST_SAMPLES:
                candidate = Candidate(file, ranks, config)
                if not candidate.wants_disk:  # its path does not exist here
                    yield candidate
                break


def choose(found):
    """Chooses the files that add most to the covered features, then any others, of different repositories."""
    chosen, covered, taken = [], set(), set()
    while len(chosen) < COUNT:
        free = [c for c in found if repository(c.file) not in taken]
        if not free:
            break
        best = max(free, key=lambda c: (len((c.features & NEEDED) - covered), len(c.features), -c.samples))
        chosen.append(best)
        covered |= best.features
        taken.add(repository(best.file))
    return chosen, covered


def check(candidate):
    run = launch.train(MPIEXEC, PROGRAM, candidate.ranks,
                       ["--deepspeed_config", candidate.file, "--model", "tiny", "--sequence-length", 16, "--steps", STEPS])
    assert len(run.steps) == STEPS, run.printed
    assert all(math.isfinite(step["loss"]) for step in run.steps), run.steps
    print(f"ok: {candidate.file.name} on {candidate.ranks} ranks, {candidate.samples} samples per step, "
          f"{', '.join(sorted(candidate.features))}: loss {run.steps[0]['loss']:.4f} to {run.steps[-1]['loss']:.4f}",
          flush=True)


def main():
    directory = os.environ.get("ZERO_DS_CONFIGS")
    if not directory:
        print("skipped: ZERO_DS_CONFIGS names no directory of configs")
        return
    found = list(candidates(pathlib.Path(directory)))
    chosen, covered = choose(found)
    print(f"{len(found)} files load and have at most {MOST_SAMPLES} samples per step")
    assert len(chosen) >= 10, len(chosen)
    needed = NEEDED if any("fp16" in c.features for c in found) else NEEDED - {"fp16"}
    assert needed <= covered, needed - covered
    for candidate in chosen:
        check(candidate)


main()
