"""Resumes converted checkpoints with the Python package on other ranks and stages: the values are DeepSpeed's, the loss
continues like DeepSpeed's own, and the client state is restored. An adapter is resumed over the program's base.

usage: resumed_test.py CONVERT DATA MPIEXEC PYTHONPATH        with a python3 that has torch, numpy and xxhash
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "pytorch/python"))
import warm  # noqa: E402

CONVERT, DATA, MPIEXEC, PACKAGE = sys.argv[1:5]
if subprocess.run([sys.executable, "-c", "import torch, numpy, xxhash"], capture_output=True).returncode:
    print(f"skipped: {sys.executable} lacks torch, numpy or xxhash")
    sys.exit(77)
RANK = pathlib.Path(__file__).with_name("resume_rank.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}


class Resumed(unittest.TestCase):
    def resume(self, kind, ranks, stage, *changes):
        with tempfile.TemporaryDirectory() as folder:
            python = warm.command(sys.executable, ENVIRONMENT)
            subprocess.run([*python, CONVERT, f"{DATA}/{kind}", f"{folder}/out"], check=True)
            done = subprocess.run(
                [MPIEXEC, "-n", str(ranks), "--oversubscribe", *python, RANK, f"{folder}/out", f"{DATA}/{kind}", str(stage),
                 *changes], capture_output=True, text=True, env=ENVIRONMENT)
        return done.returncode, done.stdout + done.stderr

    def goes_on(self, kind, ranks, stage, tolerance=1e-4):
        code, printed = self.resume(kind, ranks, stage)
        self.assertEqual(code, 0, printed)
        losses = json.loads(next(line for line in printed.splitlines() if line.startswith("[")))
        expected = json.loads(pathlib.Path(DATA, kind, "losses.json").read_text())[:len(losses)]
        for own, theirs in zip(losses, expected):
            self.assertLess(abs(own - theirs), tolerance * theirs, f"{losses} and {expected}")
        return printed

    def test_odd_sizes_and_ties_at_two_ranks(self):
        self.goes_on("odd-stage3", 2, 3)
        self.goes_on("odd-stage1", 2, 0)

    def test_an_adapter_over_its_base(self):
        for kind, stage in (("lora-stage2", 3), ("lora-stage3", 0)):
            self.assertIn("base.weight: they keep the values that this run gave them, unchecked",
                          self.goes_on(kind, 2, stage))


unittest.main(argv=sys.argv[:1])
