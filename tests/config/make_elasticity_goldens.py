"""Writes tests/data/elasticity_goldens.json: the batches that DeepSpeed's elasticity chooses.

Usage: python make_elasticity_goldens.py SOURCE    (the unpacked source of deepspeed 0.18.2; needs numpy, packaging)
"""

import json
import logging
import pathlib
import sys
import types

# The module alone, as its packages import PyTorch.
for name in ("deepspeed", "deepspeed.elasticity", "deepspeed.git_version_info", "deepspeed.utils"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["deepspeed.elasticity"].__path__ = [str(pathlib.Path(sys.argv[1]) / "deepspeed" / "elasticity")]
sys.modules["deepspeed.git_version_info"].version = "0.18.2"
sys.modules["deepspeed.utils"].logger = logging.getLogger("deepspeed")

from deepspeed.elasticity.elasticity import compute_elastic_config  # noqa: E402

WORLDS = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 31, 32, 48, 64, 100, 128, 500, 768, 1024]


def blocks():
    # The example of DeepSpeed's documentation, and that of its tests.
    yield {"max_train_batch_size": 2000, "micro_batch_sizes": [2, 4, 6], "min_gpus": 1, "max_gpus": 10000,
           "min_time": 20, "version": 0.1}
    tested = {"max_train_batch_size": 10000, "micro_batch_sizes": [8, 12, 16, 17], "min_gpus": 32, "max_gpus": 1500,
              "min_time": 20, "version": 0.1}
    yield tested
    yield {**tested, "prefer_larger_batch": False}
    for version in (0.1, 0.2):
        for largest, sizes in ((4, [4]), (64, [1, 2, 4]), (96, [4]), (100, [3, 5, 7]), (512, [7, 11, 13]),
                               (1000, [1]), (4096, [16, 8, 4]), (720721, [1, 2]), (2000000, [1, 5])):
            for larger in (True, False):
                yield {"max_train_batch_size": largest, "micro_batch_sizes": sizes, "version": version,
                       "prefer_larger_batch": larger, "max_gpus": 1200}
    for gpus in (2, 4, 8):
        for larger in (True, False):
            yield {"max_train_batch_size": 2000, "micro_batch_sizes": [2, 4, 6], "num_gpus_per_node": gpus,
                   "min_gpus": gpus, "max_gpus": 64, "prefer_larger_batch": larger}
    yield {"max_train_batch_size": 2000, "micro_batch_sizes": [2, 4, 6], "num_gpus_per_node": 8, "max_gpus": 4}


def row(block, world):
    """Returns [ranks, batch, micro batch, accumulation], or [ranks] if DeepSpeed has no batch for them."""
    try:
        total, valid, micro = compute_elastic_config({"elasticity": {"enabled": True, **block}}, "0.18.2", world)
    except Exception:  # noqa: BLE001: it has no common base
        return [world], []
    if total == 0:
        return [world], []
    return [world, total, int(micro), total // (int(micro) * world)], [int(count) for count in valid]


def main():
    cases = []
    for block in blocks():
        rows, valid = zip(*(row(block, world) for world in WORLDS))
        cases.append({"block": block, "rows": rows, "valid": max(valid, key=len)})
    out = pathlib.Path(__file__).parents[1] / "data" / "elasticity_goldens.json"
    out.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


main()
