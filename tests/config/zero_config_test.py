"""Runs `zero config` itself. Usage: zero_config_test.py ZERO"""

import json
import os
import subprocess
import sys
import tempfile

ZERO = sys.argv[1]


def run(*arguments, code=0):
    result = subprocess.run([ZERO, "config", *arguments], capture_output=True, text=True, timeout=60)
    assert result.returncode == code, (arguments, result)
    return result.stdout + result.stderr


def has(text, *parts):
    for part in parts:
        assert part in text, (part, text)


def main():
    with tempfile.TemporaryDirectory() as folder:
        def file(name, content):
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as out:
                out.write(content if isinstance(content, str) else json.dumps(content))
            return path

        good = file("good.json", {"train_batch_size": 8, "zero_optimization": {"stage": 2, "overlap_comm": False},
                                  "bf16": {"enabled": True}})
        has(run("check", good), "notice: zero_optimization.overlap_comm false: no effect here", "good.json: good")
        has(run("check", good, "--world-size", "4"), "batch on 4 ranks: 8 samples per step = micro batch 2 x")
        has(run("check", good, "--world-size", "3", code=10), "train_batch_size 8 fits 1, 2, 4, 8 ranks")
        has(run("check", good, "--set", "zero_optimization.stage=7", code=10), "7 is out of range")
        has(run("check", good, "--set", "stage", code=10), "must be PATH=VALUE")
        has(run("check", file("bad.json", {"zero_optimization": {"stagee": 2}}), code=10),
            "nearest known key: zero_optimization.stage")
        has(run("check", os.path.join(folder, "none.json"), code=10), "cannot be read")
        has(run(code=10), "subcommand")

        text = run("explain", good, "--world-size", "4", "--params", "1000000000")
        has(text, "strategy: stage 2", "parameters 2, gradients 2/N, optimizer 12/N", "4 ranks: 5.12 GiB on each")
        lines = [line.split() for line in text.splitlines()]
        assert ["train_batch_size", "8", "file"] in [line[:3] for line in lines], text
        assert ["gradient_clipping", "1", "default"] in [line[:3] for line in lines], text

        whole = json.loads(run("explain", good, "--json", "--world-size", "2"))
        assert whole["values"]["train_batch_size"] == {"value": 8, "source": "file",
                                                       "effect": "samples per optimizer step over all ranks"}, whole
        assert whole["values"]["bf16.enabled"]["value"] is True, whole
        assert whole["values"]["zero_core.gradient_sync"]["value"] is None, whole
        assert whole["batch"]["train_micro_batch_size_per_gpu"] == 4, whole
        assert whole["plan"]["strategy"] == "stage 2" and len(whole["notices"]) == 1, whole

        auto = file("auto.json", {"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto",
                                                        "max_live_parameters": 1e9}})
        text = run("explain", auto, "--hidden-size", "64", "--set", "seed=7")
        lines = [line.split()[:3] for line in text.splitlines()]
        assert ["zero_optimization.reduce_bucket_size", "4096", "auto"] in lines, text
        assert ["zero_optimization.stage3_max_live_parameters", "1000000000", "alias"] in lines, text
        assert ["seed", "7", "override"] in lines, text
        has(text, "strategy: stage 3")

        fsdp = file("fsdp.json", {"distributed_type": "FSDP", "num_processes": 4,
                                  "fsdp_config": {"fsdp_sharding_strategy": "SHARD_GRAD_OP"}})
        has(run("check", fsdp), "imported:", "zero_optimization.stage 3, zero_core.reshard_after_forward false")
        has(run("explain", fsdp), "strategy: SHARD_GRAD_OP")

        new = os.path.join(folder, "new.json")
        run("new", new, "--stage", "3", "--bf16", "--micro-batch", "2")
        text = run("explain", new)
        lines = [line.split()[:3] for line in text.splitlines()]
        assert ["zero_optimization.stage", "3", "file"] in lines and ["bf16.enabled", "true", "file"] in lines, text
        assert "notice" not in text, text
        has(run("new", new, code=10), "exists already")
        has(run("new"), "\"zero_optimization\": {\"stage\": 2}")
    print("ok")


main()
