"""Compares plans with the ledgers of training runs, to the byte. Usage: ledger_test.py ZERO TRAIN_GPT

Trains one step with 40 combinations of model, strategy, dtype, ranks, slots, offload and wire format. Each category of the
engine's memory on rank 0 must be equal to that of `zero plan`. Activations come from a model and must be within 3 %.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import unittest

ZERO, TRAIN_GPT = sys.argv[1:3]
NOT_PLANNED = {"activations", "checkpoints", "communication"}
BF16, FP16 = ("bf16.enabled=true",), ("fp16.enabled=true",)
ACCUMULATED = ("gradient_accumulation_steps=3",)
ONE_SLOT = ("zero_optimization.stage3_max_live_parameters=1", "zero_optimization.stage3_prefetch_bucket_size=0")
COMBINATIONS = (
    [("tiny", ranks, row, ()) for ranks in (1, 2, 3) for row in ("0", "1", "2", "3")] +
    [("tiny", 2, row, BF16) for row in ("0", "1", "2", "3", "grad_op")] +
    [("tiny", 2, row, (*BF16, *ACCUMULATED)) for row in ("0", "1", "2", "3")] +
    [("tiny", 2, "3", (*FP16, *ONE_SLOT)), ("tiny", 2, "3", ONE_SLOT), ("mini", 2, "2", FP16)] +
    [("llama-tiny", 2, row, BF16) for row in ("1", "3", "grad_op")] +
    [("tiny", 4, row, BF16) for row in ("hybrid/2", "hfsdp/2", "3+hpz/2")] +
    [("tiny", 2, row, BF16) for row in ("3+qwz", "3+qgz", "3+gather=fp8_e4m3", "3+reduce=mxfp8", "3+reduce=int8")] +
    [("mini", 2, row, ()) for row in ("1+nvme", "2+nvme", "3+nvme")] +
    [("tiny", 2, "3", ("optimizer.type=Lion",)), ("mini", 2, "1", ("optimizer.type=Muon",))])


def output(*command):
    run = subprocess.run(command, capture_output=True, text=True, timeout=200)
    if run.returncode != 0:
        raise AssertionError(" ".join(command) + "\n" + run.stdout + run.stderr)
    return run.stdout


def engine_part(planned):
    return {name: planned[name] for name in planned if name not in NOT_PLANNED}


def ledger(uses):
    return engine_part({name: use["peak"] for name, use in uses.items() if use["peak"] > 0})


class Ledger(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def config(self, settings):
        """Writes a config with these values, by path, and the trainer's default batch."""
        config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
        for setting in settings:
            path, value = setting.split("=", 1)
            *sections, key = path.split(".")
            section = config
            for name in sections:
                section = section.setdefault(name, {})
            section[key] = value if value[0].isupper() or value[0] == "/" else json.loads(value)
        path = os.path.join(self.folder.name, "ds_config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        return path

    def planned(self, model, ranks, row, config, *options):
        text = output(ZERO, "plan", "--model", model, "--device", "cpu", "--ranks", str(ranks), "--per-node", str(ranks),
                      "--deepspeed_config", config, "--rows", row, "--json", "-", *options)
        return json.loads(text)[0]

    def measured(self, model, ranks, row, config, *options):
        """Returns the ledgers of the ranks of a run with the row's config, as written by `zero plan --write`."""
        written, log = os.path.join(self.folder.name, "written.json"), os.path.join(self.folder.name, "log.jsonl")
        self.planned(model, ranks, row, config, "--write", written)
        with open(written, encoding="utf-8") as file:
            changed = json.load(file)
        for part in ("optimizer", "param"):
            section = changed.get("zero_optimization", {}).get("offload_" + part, {})
            if section.get("device") == "nvme":
                section["nvme_path"] = self.folder.name
        with open(written, "w", encoding="utf-8") as file:
            json.dump(changed, file)
        output(ZERO, "run", "-n", str(ranks), TRAIN_GPT, "--deepspeed_config", written, "--model", model, "--steps", "1",
               "--threads", "1", "--log-json", log, *options)
        with open(log, encoding="utf-8") as file:
            return json.loads(file.readlines()[-1])["summary"]["ranks"]

    def test_plan_is_the_ledger(self):
        self.assertEqual(len(COMBINATIONS), 40)
        for model, ranks, row, settings in COMBINATIONS:
            with self.subTest(model=model, ranks=ranks, row=row, settings=settings):
                config = self.config(settings)
                plan, run = self.planned(model, ranks, row, config), self.measured(model, ranks, row, config)[0]
                for tier in ("memory", "in_file"):
                    self.assertEqual(ledger(run.get(tier, {})), engine_part(plan[tier]), tier)

    def test_stages(self):
        """The plan of a pipeline is the ledger of a rank of the stage that needs the most."""
        for model, ranks, row, settings in (("tiny", 2, "0/p2", ()), ("tiny", 4, "3/p2", BF16), ("tiny", 3, "1/p3", BF16),
                                            ("llama-tiny", 4, "2/p2", ())):
            with self.subTest(model=model, ranks=ranks, row=row):
                config = self.config((*settings, *ACCUMULATED))
                planned = engine_part(self.planned(model, ranks, row, config)["memory"])
                self.assertIn(planned, [ledger(rank["memory"]) for rank in self.measured(model, ranks, row, config)])

    def test_activations_of_stages(self):
        """Only the last stage has the buffers of the loss head, in the plan and in the run."""
        shape = {"model_type": "gpt2", "n_layer": 3, "n_head": 4, "n_embd": 256, "n_positions": 128, "vocab_size": 16384}
        model = os.path.join(self.folder.name, "config.json")
        with open(model, "w", encoding="utf-8") as file:
            json.dump(shape, file)
        for options in (), ("--recompute",):
            with self.subTest(options=options):
                config = self.config(ACCUMULATED)
                plan = self.planned(model, 3, "0/p3", config, *options)
                runs = [rank["memory"] for rank in self.measured(model, 3, "0/p3", config, *options)]
                largest = max(sum(use["peak"] for use in run.values()) for run in runs)
                self.assertAlmostEqual(plan["bytes_per_rank"] / largest, 1, delta=0.02)

    def test_activations(self):
        sizes = {"gpt2": {"n_layer": 6, "n_head": 4, "n_embd": 256, "n_positions": 512, "vocab_size": 1024},
                 "llama": {"num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 256,
                           "intermediate_size": 704, "max_position_embeddings": 512, "vocab_size": 1024}}
        for family, options, settings in itertools.product(
                sizes, ((), ("--recompute",), ("--sequence-length", "128")), ((), BF16)):
            with self.subTest(family=family, options=options, settings=settings):
                model = os.path.join(self.folder.name, "config.json")
                with open(model, "w", encoding="utf-8") as file:
                    json.dump(sizes[family] | {"model_type": family}, file)
                config = self.config(settings)
                plan = self.planned(model, 1, "0", config, *options)["activation_bytes"]
                run = self.measured(model, 1, "0", config, *options)[0]["memory"]["activations"]["peak"]
                self.assertAlmostEqual(plan / run, 1, delta=0.04)  # the kernels of CPUs with AMX need less scratch


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
