"""Converts DeepSpeed's checkpoints: every value equals DeepSpeed's, and if training continues here, the loss continues
like DeepSpeed's own.

The checkpoints are those stored by make_checkpoints.py. Converting needs a Python with torch 2.6, numpy and xxhash:
this one, or the one that ZERO_TORCH_PYTHON names. Without it, training only continues from the stored result of a stage
3 conversion. ZERO_UPDATE_GENERATED=1 stores that result anew.

usage: convert_test.py CONVERT TRAIN_GPT ZERO MPIEXEC DATA
"""

import hashlib
import json
import os
import pathlib
import pickle
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).parents[1] / folder) for folder in ("support", "pytorch/python")]
import launch  # noqa: E402
import warm  # noqa: E402

CONVERT, TRAIN, ZERO, MPIEXEC, DATA = launch.absolute(sys.argv[1:6])
PYTHON = os.environ.get("ZERO_TORCH_PYTHON", sys.executable)
NEEDED = "import numpy, torch.serialization, xxhash; torch.serialization.safe_globals"
CONVERTS = subprocess.run([PYTHON, "-c", NEEDED], capture_output=True).returncode == 0


def convert(*arguments):
    return subprocess.run([*warm.command(PYTHON, dict(os.environ)), CONVERT, *map(str, arguments)], capture_output=True, text=True)


def tensors_of(shard):
    """Returns {"name" or "name:state": bytes} of a file that holds whole tensors."""
    content = shard.read_bytes()
    length, = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    data = content[8 + length:]
    return {name.removesuffix("@0"): data[slice(*entry["data_offsets"])]
            for name, entry in header.items() if name != "__metadata__"}


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def goes_on(self, checkpoint, kind, ranks, stage, tolerance=1e-4, sets=()):
        copy = self.folder / "trained-on"
        shutil.copytree(checkpoint, copy)
        expected = json.loads(pathlib.Path(DATA, kind, "losses.json").read_text())
        settings = [word for setting in (f"train_micro_batch_size_per_gpu={4 // ranks}", *sets)
                    for word in ("--set", setting)]
        run = launch.train(MPIEXEC, TRAIN, ranks, [
            "--deepspeed_config", f"{DATA}/ds_config.json", "--model", f"{DATA}/config.json", "--data",
            f"{DATA}/tokens.bin", "--checkpoint", copy, "--steps", 5 + len(expected), "--stage", stage, *settings])
        self.assertIn("after step 5", run.printed)
        losses = [step["loss"] for step in run.steps]
        self.assertEqual(len(losses), len(expected))
        for own, theirs in zip(losses, expected):
            self.assertLess(abs(own - theirs), tolerance * theirs, f"{losses} and {expected}")


class Stored(InFolder):
    def test_what_a_conversion_gave_is_trained_on(self):
        self.goes_on(f"{DATA}/converted", "stage3", 2, 2)


@unittest.skipUnless(CONVERTS, f"{PYTHON} has no torch 2.6, numpy and xxhash; ZERO_TORCH_PYTHON may name one that has")
class Converted(InFolder):
    def converted(self, kind):
        """Converts and checks that the result is complete, with DeepSpeed's own values."""
        output = self.folder / kind
        done = convert(f"{DATA}/{kind}", output)
        self.assertEqual(done.returncode, 0, done.stderr)
        verify = subprocess.run([ZERO, "checkpoint", "verify", output], capture_output=True, text=True)
        self.assertEqual(verify.returncode, 0, verify.stderr)
        found = tensors_of(output / "step-5" / "shard-00001-of-00001.safetensors")
        expected = json.loads(pathlib.Path(DATA, kind, "digests.json").read_text())
        self.assertEqual({name: hashlib.sha256(data).hexdigest() for name, data in found.items()}, expected)
        return output

    def test_stage_1(self):
        self.goes_on(self.converted("stage1"), "stage1", 2, 3)

    def test_stage_2(self):
        self.goes_on(self.converted("stage2"), "stage2", 1, 0)

    def test_stage_3(self):
        output = self.converted("stage3")
        stored = pathlib.Path(DATA, "converted")
        if os.environ.get("ZERO_UPDATE_GENERATED"):
            shutil.rmtree(stored, ignore_errors=True)
            shutil.copytree(output, stored)
        shard = "step-5/shard-00001-of-00001.safetensors"
        self.assertEqual(tensors_of(stored / shard), tensors_of(output / shard))
        self.goes_on(output, "stage3", 4, 2)

    def test_universal(self):
        self.goes_on(self.converted("universal"), "universal", 2, 1)

    def test_momentum(self):
        self.goes_on(self.converted("sgd"), "sgd", 2, 2, sets=(
            "optimizer.type=SGD", 'optimizer.params={"lr": 3e-2, "momentum": 0.9, "weight_decay": 0.1}'))

    def test_bf16(self):
        # The values are equal; losses differ slightly because the kernels round to bf16 at other points.
        self.goes_on(self.converted("bf16-stage1"), "bf16-stage1", 2, 3, 0.02, ("bf16.enabled=true",))

    def test_frozen(self):
        for kind in ("frozen-stage1", "bf16-stage2", "bf16-stage3"):
            output = self.converted(kind)
            text = subprocess.run([ZERO, "checkpoint", "inspect", output], capture_output=True, text=True).stdout
            self.assertEqual(text.count(" frozen "), 2, text)

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


unittest.main(argv=sys.argv[:1])
