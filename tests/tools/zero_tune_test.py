"""Tests the command `zero tune` with train_gpt. Usage: zero_tune_test.py ZERO TRAIN_GPT

Exits with 77 if mpirun is not Open MPI's."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

ZERO, TRAIN_GPT = sys.argv[1:3]


class Tune(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.config = self.path("ds.json")
        with open(self.config, "w", encoding="utf-8") as file:
            json.dump({"train_batch_size": 8, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 3}}, file)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def tune(self, *options, program=(), expect=0, command=()):
        train = (TRAIN_GPT, "--deepspeed_config", self.config, "--model", "tiny", "--sequence-length", "16", "--threads", "1")
        run = subprocess.run([ZERO, "tune", "-n", "2", "--trial-steps", "2", *options, *(command or (*train, *program))],
                             capture_output=True, text=True, timeout=250, env={**os.environ, "TMPDIR": self.folder.name})
        self.assertEqual(run.returncode, expect, run.stdout + run.stderr)
        self.assertEqual([name for name in os.listdir(self.folder.name) if name.startswith("zero-tune")], [])
        return run

    def test_the_fastest_plan_is_written_and_trains_the_same_samples(self):
        best, trials = self.path("best.json"), self.path("trials.json")
        run = self.tune("--trials", "3", "--write", best, "--json", trials, program=("--steps", "1000000"))
        with open(trials, encoding="utf-8") as file:
            tried = json.load(file)
        self.assertEqual(len(tried), 3)
        self.assertEqual([each["problem"] for each in tried], [None] * 3)
        self.assertIn("config", [each["row"] for each in tried])
        times = [each["step_seconds"] for each in tried]
        self.assertEqual(times, sorted(times))
        self.assertIn(f"{best}: {tried[0]['row']}, micro-batch {tried[0]['micro_batch']}", run.stdout)
        with open(best, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["train_batch_size"], 8)
        check = subprocess.run([ZERO, "config", "check", best, "--world-size", "2"], capture_output=True, text=True, timeout=60)
        self.assertEqual(check.returncode, 0, check.stderr)

    def test_a_program_that_fails_is_quoted(self):
        run = self.tune("--rows", "0", "--trials", "1", program=("--steps", "2"), expect=10)
        self.assertIn("0, micro-batch", run.stdout)
        self.assertIn("the program ended after fewer than 4 steps", run.stderr)
        run = self.tune("--rows", "0,1,2,3", program=("--stepps", "2"), expect=10)
        self.assertEqual(run.stderr.count("unknown option --stepps"), 2, run.stderr)  # one trial, and the reason of the end
        self.assertNotIn("*", run.stdout)
        run = self.tune("--rows", "0", "--trials", "1", expect=10, command=(
            "/bin/sh", "-c", "exit 3", "--deepspeed_config", self.config, "--model", "tiny"))
        self.assertIn("no trial succeeded: ended with code 3", run.stderr)

    def test_a_failure_that_every_plan_would_have_is_tried_once(self):
        foreign = (sys.executable, "-c", "raise ValueError('of its own')", "--deepspeed_config", self.config)
        refuses = ("/bin/sh", "-c", "echo 'prog: error: unknown --foo' >&2; exit 2", "--deepspeed_config", self.config)
        for program, problem in ((foreign, "ValueError: of its own"), (refuses, "prog: error: unknown --foo")):
            run = self.tune("--model", "tiny", expect=10, command=program)
            self.assertIn(f"no trial succeeded: {problem}", run.stderr)
            self.assertNotIn("-----", run.stderr)
            self.assertEqual(len([line for line in run.stdout.splitlines() if line.endswith(" 0")]), 1, run.stdout)
            self.assertNotIn("*", run.stdout)

    def test_time_ends_the_search(self):
        run = self.tune("--rows", "0", "--time-limit", "0.05", "--model", "tiny", expect=10, command=(
            "/bin/sh", "-c", "sleep 1000", "--deepspeed_config", self.config))
        self.assertIn("fewer than 4 steps within 3 s", run.stderr)


if __name__ == "__main__":
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True)
    if "Open MPI" not in version.stdout and "Open MPI" not in version.stderr:
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
