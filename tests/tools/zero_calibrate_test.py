"""Tests the command `zero calibrate`. Usage: zero_calibrate_test.py ZERO"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

ZERO = sys.argv[1]


def zero(*arguments):
    return subprocess.run([ZERO, *arguments], capture_output=True, text=True, timeout=250)


class Calibrate(unittest.TestCase):
    def test_the_device_serves_the_planner(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "node.json")
            run = zero("calibrate", "-n", "2", "--dir", folder, "--write", file)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(os.listdir(folder), ["node.json"])
            with open(file, encoding="utf-8") as text:
                device = json.load(text)
            for key in ("flops32", "flops16", "product_share", "attention_share", "memory_rate", "inside_rate", "reduce_share",
                        "file_read_rate", "file_write_rate", "cores"):
                self.assertGreater(device[key], 0, key)
            self.assertLess(device["flops32"], 1e13)
            plan = zero("plan", "--device", file, "--model", "mini", "--ranks", "2", "--per-node", "2", "--json", "-")
            self.assertEqual(plan.returncode, 0, plan.stderr)
            self.assertGreater(json.loads(plan.stdout)[0]["step_seconds"], 0)

    def test_one_rank_keeps_the_links_of_the_default(self):
        run = zero("calibrate", "-n", "1")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(json.loads(run.stdout)["inside_rate"], 40e9)

    def test_errors_name_the_option(self):
        run = zero("calibrate")
        self.assertEqual(run.returncode, 10)
        self.assertIn("-n is missing", run.stderr)
        run = zero("calibrate", "-n", "1", "--dir", "/nowhere")
        self.assertEqual(run.returncode, 11)
        self.assertIn("--dir /nowhere: no file can be made in it", run.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
