"""DeepSpeed's checkpoints, converted: trained on here, the loss goes on as DeepSpeed's own did.

The checkpoints are those that make_checkpoints.py stored. Needs a Python with torch 2.6, numpy and xxhash: this one, or
the one that ZERO_TORCH_PYTHON names; without, nothing is tested (exit code 77).

usage: convert_test.py CONVERT TRAIN_GPT ZERO MPIEXEC DATA
"""

import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import launch  # noqa: E402

CONVERT, TRAIN, ZERO, MPIEXEC, DATA = launch.absolute(sys.argv[1:6])
PYTHON = os.environ.get("ZERO_TORCH_PYTHON", sys.executable)
NEEDED = "import numpy, torch.serialization, xxhash; torch.serialization.safe_globals"


def convert(*arguments):
    return subprocess.run([PYTHON, CONVERT, *map(str, arguments)], capture_output=True, text=True)


class Converted(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def goes_on(self, kind, ranks, stage):
        output = self.folder / f"{kind}-{ranks}-{stage}"
        done = convert(f"{DATA}/{kind}", output)
        self.assertEqual(done.returncode, 0, done.stderr)
        verify = subprocess.run([ZERO, "checkpoint", "verify", output], capture_output=True, text=True)
        self.assertEqual(verify.returncode, 0, verify.stderr)
        expected = json.loads(pathlib.Path(DATA, kind, "losses.json").read_text())
        run = launch.train(MPIEXEC, TRAIN, ranks, [
            "--deepspeed_config", f"{DATA}/ds_config.json", "--model", f"{DATA}/config.json", "--data",
            f"{DATA}/tokens.bin", "--checkpoint", output, "--steps", 5 + len(expected), "--stage", stage,
            "--set", f"train_micro_batch_size_per_gpu={4 // ranks}"])
        self.assertIn("after step 5", run.printed)
        losses = [step["loss"] for step in run.steps]
        self.assertEqual(len(losses), len(expected))
        for own, theirs in zip(losses, expected):
            self.assertLess(abs(own - theirs), 1e-4 * theirs, f"{losses} and {expected}")

    def test_stage_1(self):
        self.goes_on("stage1", 2, 3)

    def test_stage_2(self):
        self.goes_on("stage2", 1, 0)

    def test_stage_3(self):
        self.goes_on("stage3", 4, 2)

    def test_universal(self):
        self.goes_on("universal", 2, 1)

    def refused(self, change, words):
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(f"{DATA}/stage1", copy)
        change(copy)
        output = self.folder / "output"
        done = convert(copy, output)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(words, done.stderr)
        self.assertFalse((output / "latest").exists())

    def test_code_in_a_file_is_not_run(self):
        mark = self.folder / "mark"

        class Attack:
            def __reduce__(self):
                return os.system, (f"touch {mark}",)
        for protocol in (2, 4):
            self.refused(lambda copy: (copy / "global_step5/mp_rank_00_model_states.pt").write_bytes(
                pickle.dumps({"module": Attack()}, protocol)), "mp_rank_00_model_states.pt: ")
        self.assertFalse(mark.exists())

    def test_what_is_missing_or_in_the_way(self):
        self.refused(lambda copy: (copy / "global_step5/zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink(),
                     "1 files of optimizer state, 2 ranks wrote some")
        self.refused(lambda copy: (copy / "latest").unlink(), "name one with --tag")
        self.refused(lambda copy: (copy / "global_step5/mp_rank_00_model_states.pt").unlink(), "no DeepSpeed")
        first = convert(f"{DATA}/stage1/global_step5", self.folder / "o", "--rename", "transformer.=model.")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("is not empty", convert(f"{DATA}/stage1", self.folder / "o").stderr)
        text = subprocess.run([ZERO, "checkpoint", "inspect", self.folder / "o"], capture_output=True, text=True).stdout
        self.assertIn("model.wte.weight", text)


if subprocess.run([PYTHON, "-c", NEEDED], capture_output=True).returncode != 0:
    print(f"skipped: {PYTHON} has no torch 2.6, numpy and xxhash; ZERO_TORCH_PYTHON may name one that has")
    sys.exit(77)
unittest.main(argv=sys.argv[:1])
