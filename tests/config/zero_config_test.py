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


def check_plans(file):
    """Checks refusals before a run: for the run that is named, or for every run."""
    def offload(name, stage, more=None, **sections):
        return file(name, {"train_batch_size": 8, "zero_optimization": {"stage": stage, **sections}, **(more or {})})

    no_path = offload("no_path.json", 2, offload_optimizer={"device": "nvme"})
    for options in ([], ["--device", "cpu"], ["--device", "cuda"], ["--world-size", "4"]):
        has(run("check", no_path, *options, code=10), "no_path.json:1:", "nvme_path must be given with device nvme")
    no_paths = offload("no_paths.json", 3, offload_optimizer={"device": "nvme"}, offload_param={"device": "nvme"})
    has(run("check", no_paths, code=10), "zero_optimization.offload_optimizer.nvme_path and "
        "zero_optimization.offload_param.nvme_path must be given with device nvme")
    has(run("check", offload("stage_0.json", 0, offload_optimizer={"device": "nvme", "nvme_path": "/data"}), code=10),
        "stage_0.json:1:", "nvme needs stage 1, 2 or 3")
    lamb = offload("lamb.json", 1, {"optimizer": {"type": "Lamb"}}, offload_optimizer={"device": "nvme", "nvme_path": "/"})
    has(run("check", lamb, code=10), "lamb.json:1:", "optimizer Lamb cannot have its state")

    # Settings that only one kind of device refuses.
    for name, stage, sections, reason in (
            ("host.json", 0, {"offload_optimizer": {"device": "cpu"}}, "at stage 0 every rank would keep and update"),
            ("param.json", 3, {"offload_param": {"device": "cpu"}}, "need offload_optimizer.device cpu or nvme")):
        path = offload(name, stage, **sections)
        has(run("check", path), f"notice: refused on GPU ranks: {path}:1:", reason, f"{name}: good")
        assert "refused" not in run("check", path, "--device", "cpu"), name
        for model in ("124M", "7e9", "7Bx32", "1Tx200"):
            has(run("check", path, "--device", "cuda", "--world-size", "8", "--model", model, code=10), f"{name}:1:", reason)

    groups = file("groups.json", {"train_batch_size": 8, "zero_core": {"param_groups": {"norms": {"momentum": 0.5}}}})
    has(run("check", groups, code=10), "groups.json:1:", "norms.momentum: AdamW has no such parameter")
    # One of Muon's two rules has momentum and the other betas; some program could have such a group.
    has(run("check", groups, "--set", "optimizer.type=Muon"), "a run refuses a group that its program puts no parameter in")
    momentum = file("momentum.json", {"train_batch_size": 8, "scheduler": {"type": "OneCycle", "params": {
        "cycle_min_lr": 0, "cycle_max_lr": 1, "cycle_first_step_size": 2, "decay_step_size": 1, "decay_mom_rate": 0.1}}})
    run("check", momentum, "--total-steps", "5")
    has(run("check", momentum, "--total-steps", "50", code=10), "momentum.json:1:", "raises the momentum")
    muon = file("muon.json", {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "Muon"}})
    has(run("check", muon, "--world-size", "1000000", "--model", "1Tx100"), "muon.json: good")
    for model in ("gpt2", "7Bx", "7Bx0", "x3", "-1", "nan", "1e300", ""):
        has(run("check", muon, "--model=" + model, code=10), "model")


def check_batches(file):
    batch = file("batch.json", "{\n  \"train_micro_batch_size_per_gpu\": 16,\n  \"train_batch_size\": 32\n}")
    for command in ("check", "explain"):
        has(run(command, batch, "--world-size", "4", code=10),
            "batch.json:3:23: train_batch_size 32 is not train_micro_batch_size_per_gpu 16 x")
    has(run("check", batch, "--world-size", "4", "--set", "train_batch_size=48", code=10), "override: train_batch_size 48")

    auto = {key: "auto" for key in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")}
    text = run("explain", file("auto_batch.json", auto), "--world-size", "4", "--micro-batch", "2")
    lines = [line.split()[:3] for line in text.splitlines()]
    for line in (["train_batch_size", "8", "auto"], ["train_micro_batch_size_per_gpu", "2", "auto"],
                 ["gradient_accumulation_steps", "1", "auto"]):
        assert line in lines, text
    values = json.loads(run("explain", batch, "--json", "--world-size", "2"))["values"]
    assert values["gradient_accumulation_steps"]["value"] == 1, values
    assert values["gradient_accumulation_steps"]["source"] == "derived", values
    assert values["train_batch_size"] == {"value": 32, "source": "file",
                                          "effect": "samples per optimizer step over all ranks"}, values


def check_keys():
    text = run("explain", "zero_optimization.stage")
    has(text, "type       integer", "allowed    an integer from 0 to 3", "default    0", "here       acts",
        "DeepSpeed  means the same")
    assert run("explain", "stage") == text
    has(run("explain", "max_live_parameters"), "zero_optimization.stage3_max_live_parameters", "also written", "two units")
    has(run("explain", "lr"), "optimizer.params.lr", "zero_core.param_groups.*.lr", "has no such key")
    has(run("explain", "wandb.enabled"), "no effect: nothing is sent to a service; tensorboard and csv_monitor")
    has(run("explain", "amp"), "refused if its value enables it: DeepSpeed removed", "refused by presence")
    has(run("explain", "fp16"), "object", "loss_scale_window  ", "steps without overflow")
    has(run("explain", "stagee", code=10), "stagee: no known key, and no file; nearest known key: zero_optimization.stage")
    has(run("explain", "zero_optimisation.stage", code=10), "nearest known key: zero_optimization.stage")
    text = run("explain", "msamp", code=10)
    has(text, "docs/config.md")
    assert "nearest" not in text, text
    facts = json.loads(run("explain", "train_batch_size", "--json"))["train_batch_size"]
    assert facts["type"] == "integer" and facts["allowed"] == "an integer from 1 to 1e+09, or null", facts


def check_accelerate(file, folder):
    """One document of an Accelerate file and the DeepSpeed config that it names: the printed settings take effect."""
    file("named.json", {"zero_optimization": {"stage": 2}})
    file("half.json", {"zero_optimization": {"stage": 2}, "fp16": {"enabled": True}})

    def accelerate(name, deepspeed, **keys):
        return file(name, {"distributed_type": "DEEPSPEED", "deepspeed_config": deepspeed, "num_processes": 2, **keys})

    def explained(path, *names):
        values = json.loads(run("explain", path, "--json"))["values"]
        return [values[name]["value"] for name in names]

    # Named from another folder than the working one.
    assert os.path.abspath(folder) != os.getcwd()
    path = accelerate("noblock.json", {"deepspeed_config_file": "named.json"}, mixed_precision="bf16")
    text = run("check", path)
    has(text, "mixed_precision", "bf16.enabled true")
    assert explained(path, "bf16.enabled", "zero_optimization.stage") == [True, 2]
    path = accelerate("contra.json", {"deepspeed_config_file": "half.json"}, mixed_precision="bf16")
    has(run("check", path, code=10), "contra.json:1:", "mixed_precision: means bf16.enabled, but", "half.json:1:")
    path = accelerate("keys.json", {"deepspeed_config_file": "half.json", "zero_stage": 3, "gradient_clipping": 0.5})
    has(run("check", path, code=10), "deepspeed_config.zero_stage: means zero_optimization.stage 3, but",
        "deepspeed_config.gradient_clipping: means gradient_clipping 0.5, but")

    text = ("distributed_type: FSDP\ndowncast_bf16: no\nfsdp_config:\n  fsdp_backward_prefetch_policy: BACKWARD_PRE\n"
            "  fsdp_sharding_strategy: 2\nmixed_precision: no\n")
    yaml = file("fsdp.yaml", text)
    result = subprocess.run([ZERO, "config", "check", yaml], capture_output=True, text=True, timeout=60)
    if "no yaml-cpp" in result.stderr:
        return
    for path in (yaml, file("fsdp", text)):  # without an extension the text shows that it is YAML
        has(run("check", path), "an old name of fsdp_backward_prefetch", "zero_core.reshard_after_forward false", "fp32")


def check_new(folder):
    new = os.path.join(folder, "new.json")
    text = run("new", new, "--stage", "3", "--bf16", "--micro-batch", "2", "--lr", "0.000123456789")
    has(text, "zero_optimization.stage ", "0: nothing, 1: optimizer states")
    with open(new, encoding="utf-8") as written:
        config = json.load(written)  # Python's reader, which accepts no comments
    assert config["zero_optimization"]["stage"] == 3 and config["bf16"]["enabled"] is True, config
    assert config["optimizer"]["params"]["lr"] == 0.000123456789, config
    text = run("check", new, "--world-size", "4")
    assert "notice" not in text, text
    lines = [line.split()[:3] for line in run("explain", new).splitlines()]
    assert ["zero_optimization.stage", "3", "file"] in lines and ["bf16.enabled", "true", "file"] in lines, lines
    has(run("new", new, code=10), "exists already")
    piped = subprocess.run([ZERO, "config", "new"], capture_output=True, text=True, timeout=60)
    assert json.loads(piped.stdout)["zero_optimization"] == {"stage": 2}, piped
    has(piped.stderr, "steps_per_print ", "a progress line every N steps")


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
        elastic = file("elastic.json", {"elasticity": {"enabled": True, "max_train_batch_size": 12, "micro_batch_sizes": [2, 3],
                                                       "version": 0.1, "min_gpus": 3}})
        has(run("check", elastic), "elastic.json: good")
        has(run("explain", elastic, "--world-size", "4"), "elasticity: 12 samples fit 3, 4, 6 ranks",
            "batch on 4 ranks: 12 samples per step = micro batch 3 x accumulation 1 x 4")
        has(run("check", elastic, "--world-size", "5", code=10), "does not fit 5 ranks; next to it 4 or 6 would fit")
        has(run("check", good, "--world-size", "3", code=10), "train_batch_size 8 fits 1, 2, 4, 8 ranks")
        has(run("check", good, "--set", "zero_optimization.stage=7", code=10), "7 is out of range")
        has(run("check", good, "--set", "stage", code=10), "expected path=value")
        has(run("check", file("bad.json", {"zero_optimization": {"stagee": 2}}), code=10),
            "nearest known key: zero_optimization.stage")
        has(run("check", os.path.join(folder, "none.json"), code=10), "cannot be read")
        has(run(code=10), "a command is missing")

        text = run("explain", good, "--world-size", "4", "--params", "1000000000")
        has(text, "strategy: stage 2", "parameters 2, gradients 2/N, optimizer 12/N", "zero plan --deepspeed_config ")
        lines = [line.split() for line in text.splitlines()]
        assert ["train_batch_size", "8", "file"] in [line[:3] for line in lines], text
        assert ["gradient_clipping", "1", "default"] in [line[:3] for line in lines], text

        has(text, "exchanges of one block on 4 ranks:", "over 4 ranks", "  update\n    gather: all-gather: parameter shard (bf16) -> ")
        assert "exchanges" not in run("explain", good), "without a number of ranks there are none"
        has(run("explain", good, "--world-size", "4", "--per-node", "3", code=10), "--world-size 4 is no multiple of --per-node 3")

        whole = json.loads(run("explain", good, "--json", "--world-size", "2"))
        assert [exchange["instruction"] for exchange in whole["exchanges"]][-1] == "gather", whole
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

        steps = file("steps.json", {"train_batch_size": 8, "scheduler": {"type": "WarmupDecayLR", "params": {
            "total_num_steps": "auto", "warmup_num_steps": "auto"}}})
        has(run("check", steps), 'notice: scheduler.params.total_num_steps: "auto" is open', "steps.json: good")
        assert "notice" not in run("check", steps, "--total-steps", "100")
        lines = [line.split()[:4] for line in run("explain", steps).splitlines()]
        assert ["scheduler.params.total_num_steps", "(not", "set)", "auto"] in lines, lines
        strings = file("strings.json", {"train_batch_size": "8", "fp16": {"enabled": "True"},
                                        "optimizer": {"params": {"lr": "1e-5", "betas": ["0.9", 0.99]}}})
        has(run("check", strings), "notice: train_batch_size, fp16.enabled, optimizer.params.lr, optimizer.params.betas: "
            "read as the number or truth value")

        check_plans(file)
        check_batches(file)
        check_keys()
        check_accelerate(file, folder)
        check_new(folder)
    print("ok")


main()
