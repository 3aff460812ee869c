"""Tests the command `zero plan`. Usage: command_test.py ZERO"""

import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

ZERO = sys.argv[1]
KEYS = {"row", "ranks", "bytes_per_rank", "fits", "bytes_inside_node", "bytes_between_nodes", "step_seconds",
        "exposed_seconds", "tokens_per_s_per_rank", "mfu"}


def plan(*arguments):
    return subprocess.run([ZERO, "plan", *arguments], capture_output=True, text=True, timeout=60)


class Command(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name, text=None):
        path = os.path.join(self.folder.name, name)
        if text is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return path

    def rows(self, *arguments):
        run = plan(*arguments, "--json", "-")
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)

    def test_json_has_an_object_for_each_row(self):
        for arguments in (("--model", "gpt2", "--ranks", "16"), ("--params", "7B", "--layers", "32", "--hidden", "4096")):
            rows = self.rows(*arguments, "--recompute")
            self.assertGreater(len(rows), 15)
            for row in rows:
                self.assertLessEqual(KEYS, set(row), row["row"])
        self.assertEqual([row["row"] for row in self.rows("--model", "gpt2", "--rows", "0,3")], ["0", "3"])

    def test_samples_beyond_the_context(self):
        llama = self.path("config.json", json.dumps({
            "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000,
            "intermediate_size": 128, "max_position_embeddings": 128, "hidden_act": "silu"}))
        self.assertNotIn("notice", plan("--model", llama, "--sequence-length", "128").stdout)
        run = plan("--model", llama, "--sequence-length", "256")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("notice: --sequence-length 256 is beyond the model's context of 128: transformers trains that",
                      " ".join(run.stdout.split()))

    def test_up_to_4096_ranks(self):
        for ranks in ("1024", "4096"):
            rows = self.rows("--params", "70B", "--layers", "80", "--hidden", "8192", "--ranks", ranks)
            self.assertFalse(any("refused" in row for row in rows))

    def test_text_fits_100_columns(self):
        run = plan("--model", "gpt2-xl", "--ranks", "64", "--memory", "--price", "2", "--total-tokens", "10B")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertLessEqual(max(map(len, run.stdout.splitlines())), 100)
        self.assertIn("hours on 64 ranks and cost", run.stdout)

    def test_model_of_a_safetensors_header(self):
        header = json.dumps({f"layers.{i}.w": {"dtype": "F32", "shape": [8, 8], "data_offsets": [256 * i, 256 * (i + 1)]}
                             for i in range(3)}).encode()
        path = self.path("m.safetensors")
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + bytes(768))
        row, = self.rows("--model", path, "--ranks", "2", "--per-node", "2", "--rows", "0")
        self.assertGreaterEqual(row["model_state_bytes"], 16 * 3 * 64)

    def safetensors(self, name, tensors):
        header, at = {}, 0
        for tensor, shape in tensors.items():
            size = 4 * math.prod(shape)
            header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
            at += size
        text = json.dumps(header).encode()
        with open(self.path(name), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + bytes(at))

    def test_a_model_as_it_was_downloaded(self):
        def parameters(model, notice=""):
            run = plan("--model", model, "--rows", "0,3", "--ranks", "2", "--per-node", "2")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn(notice, " ".join(run.stdout.split()))
            if not notice:
                self.assertNotIn("notice", run.stdout)
            return self.rows("--model", model, "--rows", "0")[0]["parameters"]

        block = {f"layers.{i}.attn.q_proj.weight": [8, 8] for i in range(2)}
        shards = [{"embed_tokens.weight": [50, 8], **block, "layers.0.attn.bias": [1, 1, 4, 4]}, {"lm_head.weight": [50, 8]}]
        names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
        for name, tensors in zip(names, shards):
            self.safetensors(name, tensors)
        os.rename(self.path(names[1]), self.path("other"))
        one = parameters(self.path(names[0]), "is one of 2 files of a model: this plan is of its 528 parameters ALONE")
        self.assertEqual(one, 400 + 128)  # the mask is no parameter
        os.rename(self.path("other"), self.path(names[1]))
        index_text = json.dumps(
            {"metadata": {}, "weight_map": {tensor: name for name, tensors in zip(names, shards) for tensor in tensors}})
        index = self.path("model.safetensors.index.json", index_text)
        for model in (self.folder.name, index):
            self.assertEqual(parameters(model), 928)
        self.assertEqual(parameters(self.path(names[1]), "of the whole model"), 928)
        os.remove(index)
        for model in (self.folder.name, self.path(names[0])):
            self.assertEqual(parameters(model, "" if model == self.folder.name else "of the whole model"), 928)
        os.rename(self.path(names[1]), self.path("other"))
        run = plan("--model", self.folder.name)
        self.assertEqual(run.returncode, 10)
        self.assertIn(names[1] + " is missing", run.stderr)
        os.rename(self.path("other"), self.path(names[1]))
        index = self.path("model.safetensors.index.json", index_text)
        # A config.json of a family that the tool knows decides; of another it gives what names lack.
        config = {"model_type": "other", "num_attention_heads": 2, "max_position_embeddings": 16}
        self.path("config.json", json.dumps(config))
        self.assertEqual(parameters(self.folder.name), 928)
        os.remove(self.path(names[1]))
        run = plan("--model", index)
        self.assertEqual(run.returncode, 10)
        self.assertIn("python -m zerocore plan", run.stderr)
        known = {"model_type": "mistral", "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 2,
                 "num_hidden_layers": 2, "intermediate_size": 16, "vocab_size": 50}
        config = self.path("config.json", json.dumps(known))
        whole = parameters(config)
        for model in (index, self.folder.name):
            self.assertEqual(parameters(model), whole)
        self.assertEqual(parameters(self.path(names[0]), "of the whole model"), whole)
        self.path("config.json", json.dumps({**known, "architectures": ["MistralForSequenceClassification"]}))
        self.assertEqual(parameters(config, "notice: its architecture is MistralForSequenceClassification"), whole)

    def test_what_it_cannot_plan_names_the_way(self):
        weights = self.path("pytorch_model.bin", "x")
        os.mkfifo(self.path("pipe.json"))
        for model, text in ((self.folder.name, "pytorch_model.bin"), (weights, "config.json or folder"),
                            ("Qwen/Qwen3-8B", "python -m zerocore plan"), (self.path("pipe.json"), "not a regular file"),
                            (self.path("none.json"), "neither a preset"), ("/dev/zero", "not a regular file")):
            run = plan("--model", model)
            self.assertEqual(run.returncode, 10, run.stderr)
            self.assertIn(text, run.stderr)

    def test_an_object_of_set_is_planned(self):
        given = ("--model", "gpt2", "--ranks", "2", "--per-node", "2")
        plain, = self.rows(*given, "--rows", "0")
        sgd, = self.rows(*given, "--rows", "0", "--set", 'optimizer={"type": "SGD", "params": {"lr": 0.5}}')
        fp32, = self.rows(*given, "--rows", "0", "--set", 'bf16={"enabled": false}')
        self.assertGreater(plain["memory"]["optimizer_state"], 0)
        self.assertNotIn("optimizer_state", sgd["memory"])
        self.assertEqual(fp32["memory"]["parameters"], 2 * plain["memory"]["parameters"])
        written = self.path("set.json")
        run = plan(*given, "--rows", "1", "--set", 'optimizer={type: "SGD", "params": {"lr": 0.5}}', "--write", written)
        self.assertEqual(run.returncode, 0, run.stderr)
        with open(written, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["optimizer"], {"type": "SGD", "params": {"lr": 0.5}})

    def test_outputs_are_tried_first_and_old_files_stay(self):
        given = ("--model", "tiny", "--ranks", "2", "--per-node", "2", "--rows", "0")
        old = self.path("old.json", "old")
        for arguments, code, text in ((("--json", self.path("none/a.json")), 10, "No such file or directory"),
                                      (("--write", self.folder.name), 10, "it is a directory"),
                                      (("--report", old), 10, "cannot be made"),
                                      (("--write", "/dev/full"), 14, "No space left on device")):
            run = plan(*given, *arguments)
            self.assertEqual(run.returncode, code, run.stderr)
            self.assertIn(text, run.stderr)
        with open(old, encoding="utf-8") as file:
            self.assertEqual(file.read(), "old")

    def test_a_deadline_finds_the_ranks(self):
        given = ("--params", "7Bx32", "--hidden", "4096", "--rows", "0,3", "--price", "2", "--total-tokens", "100B")
        run = plan(*given, "--deadline", "100")
        self.assertEqual(run.returncode, 0, run.stderr)
        found = re.search(r"cheapest, \S+: 100,000,000,000 tokens take ([\d.]+) hours on (\d+) ranks", " ".join(run.stdout.split()))
        self.assertTrue(found, run.stdout)
        self.assertLessEqual(float(found[1]), 100)
        self.assertGreater(int(found[2]), 8)
        run = plan(*given, "--deadline", "0.01")
        self.assertIn("up to 4096 ranks fits and ends in time", run.stdout)

    def test_rows_that_send_more_say_why_or_are_left_out(self):
        given = ("--params", "7B", "--layers", "32", "--hidden", "4096", "--ranks", "64")
        rows = {row["row"]: row for row in self.rows(*given)}
        self.assertNotIn("3+reduce=int8", rows)
        text = " ".join(plan(*given).stdout.split())
        self.assertIn("Left out, because they send more than 3 and save neither time nor memory: 3+reduce=bf16: between nodes", text)
        for row in rows.values():
            if row["row"].startswith(("3+", "hybrid", "hfsdp")):
                more = [key for key in ("bytes_inside_node", "bytes_between_nodes") if row[key] > 1.01 * rows["3"][key]]
                self.assertEqual(bool(more), f"{row['row']} sends more than 3" in text, row["row"])
        self.assertIn("3+reduce=int8 sends more than 3", " ".join(plan(*given, "--rows", "3,3+reduce=int8").stdout.split()))

    def test_writes_a_config_that_is_good(self):
        given = self.path("given.json", '{"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": true}, '
                                        '"zero_optimization": {"stage": 1}}')
        written = self.path("written.json")
        run = plan("--model", "gpt2", "--ranks", "16", "--deepspeed_config", given, "--rows", "3", "--write", written)
        self.assertEqual(run.returncode, 0, run.stderr)
        with open(written, encoding="utf-8") as file:
            config = json.load(file)
        self.assertEqual(config["zero_optimization"]["stage"], 3)
        self.assertEqual(config["fp16"], {"enabled": True})
        check = subprocess.run([ZERO, "config", "check", written, "--world-size", "16"], capture_output=True, text=True)
        self.assertEqual(check.returncode, 0, check.stderr)

    def test_report(self):
        run = plan("--model", "gpt2", "--ranks", "16", "--report", self.path("report"))
        self.assertEqual(run.returncode, 0, run.stderr)
        with open(self.path("report/report.html"), encoding="utf-8") as file:
            page = file.read()
        for part in ("Predicted time per step", "GPU memory per rank", "hybrid/8", "MFU, %"):
            self.assertIn(part, page)

    def test_says_what_would_fit(self):
        run = plan("--model", "gpt2-xl", "--ranks", "2", "--per-node", "2", "--device-memory", "20GB", "--rows", "0")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("no recommendation: no row fits", run.stdout)
        self.assertEqual(run.stdout.count("Fits with "), 3)

    def test_errors_name_the_option(self):
        file = self.path("device.json", '{"like": "h100", "flop": 1}')
        for arguments, message in (
                ((), "give the model"), (("--model", "gpt3"), "--model gpt3"),
                (("--model", "gpt2", "--device", "h300"), "--device h300"),
                (("--model", "gpt2", "--device", file), "has no key flop"),
                (("--model", "gpt2", "--ranks", "9"), "--ranks 9 is no multiple"),
                (("--model", "gpt2", "--ranks", "0"), "--ranks 0"),
                (("--model", "gpt2", "--ranks", "5000000"), "--ranks 5000000"),
                (("--model", "gpt2", "--rows", "5"), "--rows 5"),
                (("--model", "gpt2", "--kernels", "slow"), "--kernels slow"),
                (("--model", "gpt2", "--layers", "3"), "go with --params"),
                (("--params", "7X"), "--params 7X"), (("--model", "gpt2", "--price", "2"), "--total-tokens"),
                (("--model", "gpt2", "--deepspeed_config", "/no/file.json"), "/no/file.json"),
                (("--model", "gpt2", "--set", "train_batch_size=3", "--ranks", "2"), "train_batch_size")):
            with self.subTest(arguments=arguments):
                run = plan(*arguments)
                self.assertEqual(run.returncode, 10, run.stdout + run.stderr)
                self.assertIn(message, run.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
