"""One rank of a test of configs in all forms: `configs.py FOLDER`. Each form must mean the same in Python as in the
library, and errors must name the user's own line."""

import argparse
import base64
import json
import math
import pathlib
import subprocess
import sys

import torch
from torch.utils.flop_counter import FlopCounterMode

import zerocore
from idioms.harness import Net

FOLDER = pathlib.Path(sys.argv[1])
PLAIN = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}, "bf16": {"enabled": "true"},
         "gradient_clipping": "auto", "steps_per_print": 0}
COMMENTED = """# a comment
{
  "train_micro_batch_size_per_gpu": 2,  // another
  "zero_optimization": {"stage": 2,},
  /* and one more */
  "bf16": {"enabled": true},
  "steps_per_print": 0,
}
"""


def check(config, args=None, stage=2, dtype=torch.bfloat16, clipping=1.0):
    net = Net()
    engine, _, _, scheduler = zerocore.initialize(args=args, model=net, config=config,
                                                  optimizer=torch.optim.AdamW(net.parameters()))
    found = (engine.zero_optimization_stage(), engine.head.weight.dtype, engine.gradient_clipping(),
             engine.bfloat16_enabled(), scheduler)
    assert found == (stage, dtype, clipping, dtype == torch.bfloat16, None), found
    engine.backward(engine(torch.randn(2, 9, dtype=dtype)).float().mean())
    engine.step()
    assert isinstance(engine.config, dict)
    engine.destroy()
    return engine.config


def refused(config, *parts):
    try:
        zerocore.initialize(model=Net(), config=config)
    except zerocore.ConfigError as error:
        assert error.exit_code == 10, error.exit_code
        for part in parts:
            assert part in str(error), f"{part} is not in: {error}"
        return
    raise AssertionError(f"{config} was taken")


def write(name, text):
    (FOLDER / name).write_text(text, encoding="utf-8")
    return FOLDER / name


class Mapping:
    """Like OmegaConf's DictConfig: no dict, but a mapping of mappings."""

    def __new__(cls, values):
        import collections.abc

        class View(collections.abc.Mapping):
            def __getitem__(self, key):
                return Mapping(values[key]) if isinstance(values[key], dict) else values[key]

            def __iter__(self):
                return iter(values)

            def __len__(self):
                return len(values)
        return View()


def forms():
    check(PLAIN)
    assert check(dict(PLAIN)) == PLAIN
    check(Mapping(PLAIN))
    commented = write("commented.json", COMMENTED)
    assert check(commented)["zero_optimization"] == {"stage": 2}
    check(str(commented))
    check(None, argparse.Namespace(deepspeed_config=str(commented)))
    check(write("bom.json", "\ufeff" + json.dumps(PLAIN)))
    check(COMMENTED)
    check(json.dumps(PLAIN))
    check(base64.urlsafe_b64encode(COMMENTED.encode()).decode())
    write("named.json", COMMENTED)
    yaml = ("distributed_type: DEEPSPEED\nmixed_precision: bf16\n"
            "deepspeed_config:\n  deepspeed_config_file: named.json\n")
    assert check(write("accelerate.yaml", yaml))["bf16"] == {"enabled": True}
    check(write("fsdp.yaml", "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"),
          stage=3, dtype=torch.float32)


def values():
    fp32 = {"stage": 0, "dtype": torch.float32}
    batch = {"train_micro_batch_size_per_gpu": 2, "steps_per_print": float("inf")}
    check({**batch, "bf16": None}, **fp32)
    check({**batch, "zero_optimization": True}, stage=1, dtype=torch.float32)
    check({**batch, "zero_optimization": False}, **fp32)
    check({**batch, "zero_optimization": {"stage": "3.0"}, "bf16": {"enabled": 1}}, stage=3)
    check({**batch, "gradient_clipping": "0.5"}, clipping=0.5, **fp32)
    twice = '{\n  "train_micro_batch_size_per_gpu": 2,\n  "seed": 1,\n  "seed": 2\n}'
    refused(write("twice.json", twice), "twice.json:4:3", "seed", "line 3")
    refused(twice, "config:4:3")
    refused(write("unknown.json", '{\n  "train_micro_batch_size_per_gpu": 2,\n\n  "fp61": {}\n}'), "unknown.json:4:3", "fp61")
    refused(str(FOLDER / "missing.json"), "missing.json: cannot be read: No such file")
    refused({**batch, "seed": torch.zeros(3)}, "config.seed", "is no value of a config")


def monitors():
    batch = {"train_micro_batch_size_per_gpu": 2, "steps_per_print": 2, "wall_clock_breakdown": True,
             "csv_monitor": {"enabled": True, "output_path": str(FOLDER / "csv"), "job_name": "job"},
             "zero_core": {"json_lines": str(FOLDER / "records.jsonl"), "prometheus": str(FOLDER / "zerocore.prom")},
             "optimizer": {"type": "AdamW", "params": {"lr": 0.5}}}
    engine, *_ = zerocore.initialize(model=Net(), config=batch)
    assert "\noptimizer.params.lr = 0.5\n" in engine.describe_config(), engine.describe_config()
    for _ in range(4):
        engine.backward(engine(torch.randn(2, 9)).mean())
        engine.step()
    assert engine.monitor.enabled
    engine.monitor.write_events([("Eval/Samples/accuracy", torch.tensor(0.5), 8), ("Eval/Samples/accuracy", 1, 16)])
    if engine.global_rank == 0:
        accuracies = (FOLDER / "csv" / "job" / "Eval_Samples_accuracy.csv").read_text()
        assert accuracies == "step,accuracy\n8,0.5\n16,1\n", accuracies
        rates = (FOLDER / "csv" / "job" / "Train_Samples_lr.csv").read_text().splitlines()
        assert len(rates) == 5 and rates[-1].endswith("0.5"), rates
        records = [json.loads(line) for line in (FOLDER / "records.jsonl").read_text().splitlines()]
        steps = [record for record in records if "step" in record]
        assert [record["step"] for record in steps] == [1, 2, 3, 4] and steps[3]["samples"] == 8 * engine.dp_world_size
        assert steps[3]["lr"] == 0.5 and all(math.isfinite(record["loss"]) for record in steps), steps
        assert [record["event"] for record in records if "event" in record] == [
            {"tag": "Eval/Samples/accuracy", "value": 0.5, "step": 8}, {"tag": "Eval/Samples/accuracy", "value": 1.0, "step": 16}]
        times = [record["diagnostics"]["seconds"] for record in records if "diagnostics" in record]
        assert times and all(set(seconds) >= {"forward", "backward", "waiting"} for seconds in times), records
        text = (FOLDER / "zerocore.prom").read_text()
        assert "\nzerocore_step 4\n" in text and 'zerocore_step_seconds{kind="forward"}' in text, text
        hook = pathlib.Path(__file__).parents[3] / "examples/pass_on_records.py"
        passed = subprocess.run([sys.executable, hook, FOLDER / "records.jsonl", "1"], text=True, capture_output=True)
        assert [json.loads(line) for line in passed.stdout.splitlines()] == records, passed


def diagnostics():
    profile, trace = FOLDER / "profile.txt", FOLDER / "trace.json"
    batch = {"train_micro_batch_size_per_gpu": 2, "steps_per_print": 3, "memory_breakdown": True, "dump_state": True,
             "comms_logger": {"enabled": True}, "zero_core": {"trace": str(trace)},
             "flops_profiler": {"enabled": True, "profile_step": 2, "output_file": str(profile)},
             "gradient_accumulation_steps": 2, "optimizer": {"type": "AdamW", "params": {"lr": 0.5}}}
    engine, *_ = zerocore.initialize(model=Net(), config=batch)
    with FlopCounterMode(display=False) as counter:
        Net()(torch.randn(2, 9))
    for _ in range(6):
        engine.backward(engine(torch.randn(2, 9)).mean())
        engine.step()
    summary = engine.write_trace()
    if engine.global_rank != 0:
        assert summary is None
        return
    assert "mean of steps 1 to 3: " in summary, summary
    spans = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    for step in (span for span in spans if span["cat"] == "step"):
        parts = sum(span["dur"] for span in spans if span["pid"] == step["pid"] and span["args"]["step"] == step["args"]["step"]
                    and span["cat"] in ("other", "kernels", "waiting", "optimizer"))
        assert abs(parts - step["dur"]) <= 0.02 * step["dur"], (step, parts)
    lines = profile.read_text()
    # Two micro-batches, forward and backward.
    flops = 2 * 3 * counter.get_total_flops() * engine.world_size
    assert "profile  step 2: " in lines and f"{flops / 1e12:.4g} TFLOP in forward" in lines, (lines, flops)


forms()
values()
monitors()
diagnostics()
