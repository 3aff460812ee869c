"""Tests the command `zero plan`. Usage: command_test.py ZERO"""

import json
import os
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
