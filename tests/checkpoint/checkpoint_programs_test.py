"""Runs train_gpt's --checkpoint, --resume, ... and `zero checkpoint` as programs.

Usage: checkpoint_programs_test.py TRAIN_GPT ZERO MPIRUN
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

TRAIN, ZERO, MPIRUN = sys.argv[1:4]
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMPI_MCA_mpi_yield_when_idle="1")
SMALL = ["--model", "tiny", "--threads", "1", "--set", "train_batch_size=8", "--sequence-length", "16"]


def call(*command, code=0):
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    text = done.stdout + done.stderr
    if done.returncode != code:
        raise AssertionError(f"{' '.join(command)} returned {done.returncode}, not {code}:\n{text}")
    return text


def train(ranks, *arguments, code=0):
    return call(MPIRUN, "-n", str(ranks), "--oversubscribe", TRAIN, *SMALL, *arguments, code=code)


def digest(log):
    with open(log) as file:
        return json.loads(file.readlines()[-1])["summary"]["digest"]


def tensors(path):
    """Returns name -> (dtype, shape, bytes) of a safetensors file, read according to the format's page."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length:]
    return {name: (t["dtype"], t["shape"], body[t["data_offsets"][0]:t["data_offsets"][1]])
            for name, t in header.items()}


class Programs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        # Makes an uninterrupted run, and one in two halves that saves between them.
        train(2, "--steps", "8", "--stage", "1", "--log-json", cls.at("straight.json"))
        cls.first = train(2, "--steps", "4", "--stage", "1", "--checkpoint", cls.at("c"), "--save-model", cls.at("m"))
        cls.second = train(2, "--steps", "8", "--stage", "3", "--checkpoint", cls.at("c"), "--save-every", "2",
                           "--keep", "3", "--log-json", cls.at("resumed.json"))

    @classmethod
    def at(cls, name):
        return os.path.join(cls.folder.name, name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_resumed_equals_uninterrupted(self):
        self.assertIn("starting from step 0", self.first)
        self.assertIn("after step 4", self.second)
        self.assertEqual(digest(self.at("straight.json")), digest(self.at("resumed.json")))
        kept = sorted(name for name in os.listdir(self.at("c")) if name.startswith("step-"))
        self.assertEqual(kept, ["step-4", "step-6", "step-8"])

    def test_no_silent_fresh_start(self):
        refused = train(1, "--steps", "9", "--checkpoint", self.at("c"), "--resume", "none", code=10)
        self.assertIn("--overwrite-later", refused)
        refused = train(1, "--steps", "9", "--checkpoint", self.at("c"), "--resume", "step-4", code=10)
        self.assertIn("holds step-8, saved later", refused)
        refused = train(1, "--steps", "9", "--checkpoint", self.at("c"), "--resume", "step-5", code=15)
        self.assertIn("it has step-8, step-6, step-4", refused)
        self.assertIn("need --checkpoint", train(1, "--keep", "2", code=10))

    def test_overwrite_later(self):
        copy = self.at("copy")
        call("cp", "-r", self.at("c"), copy)
        text = train(3, "--set", "train_batch_size=9", "--steps", "5", "--stage", "2", "--checkpoint", copy,
                     "--resume", "step-4", "--overwrite-later")
        self.assertIn("moved step-8 to .trash-set-aside-step-8", text)
        self.assertIn("saved after 32 samples", text)
        self.assertEqual(sorted(n for n in os.listdir(copy) if n.startswith("step-")), ["step-4", "step-5"])

    def test_inspect_and_verify(self):
        text = call(ZERO, "checkpoint", "inspect", self.at("c"))
        for part in ("step-8", "step-6", "AdamW (exp_avg, exp_avg_sq)", "scheduler   WarmupLR", "saved with  ranks 2", "transformer.wte.weight"):
            self.assertIn(part, text)
        self.assertIn("every digest right", call(ZERO, "checkpoint", "verify", self.at("c/step-6")))
        damaged = self.at("damaged")
        call("cp", "-r", self.at("c/step-6"), damaged)
        with open(os.path.join(damaged, "shard-00002-of-00002.safetensors"), "r+b") as file:
            file.seek(-9, os.SEEK_END)
            byte = file.read(1)
            file.seek(-9, os.SEEK_END)
            file.write(bytes([byte[0] ^ 16]))
        self.assertIn("are damaged", call(ZERO, "checkpoint", "verify", damaged, code=15))
        self.assertIn("No such file", call(ZERO, "checkpoint", "verify", self.at("x"), code=15))

    def test_a_folder_of_folders_with_checkpoints(self):
        os.mkdir(self.at("out"))
        call("cp", "-r", self.at("c"), self.at("out/checkpoint-8"))
        self.assertIn("there is no checkpoint in it, but in " + self.at("out/checkpoint-8"),
                      call(ZERO, "checkpoint", "inspect", self.at("out"), code=15))

    def test_a_damaged_newest_checkpoint_is_not_replaced_by_an_older_one(self):
        older = self.at("c/step-6")
        for harm in ("changed", "empty", "gone"):
            copy = self.at(f"newest-{harm}")
            call("cp", "-r", self.at("c"), copy)
            manifest = os.path.join(copy, "step-8", "manifest.json")
            with open(manifest, "r+b") as file:
                if harm == "empty":
                    file.truncate(0)
                file.write(b"{" if harm == "empty" else b" ")
            if harm == "gone":
                os.remove(manifest)
            for command in (["verify", copy], ["export", copy, self.at("none")], ["inspect", copy], ["diff", copy, older],
                            ["diff", older, copy]):
                text = call(ZERO, "checkpoint", *command, code=15)
                self.assertIn("step-8", text)
                self.assertIn("the newest that can be read is step-6: to take it, give ", text)
            self.assertFalse(os.path.exists(self.at("none")))
            self.assertIn("step-6: whole", call(ZERO, "checkpoint", "verify", copy, "--tag", "step-6"))
            self.assertIn("hold the same", call(ZERO, "checkpoint", "diff", os.path.join(copy, "step-6"), older))
        copy = self.at("older-damaged")
        call("cp", "-r", self.at("c"), copy)
        os.truncate(os.path.join(copy, "step-4", "manifest.json"), 1)
        text = call(ZERO, "checkpoint", "verify", copy)
        self.assertIn("step-8: whole", text)
        self.assertIn("notice: left alone", text)

    def test_export_is_the_model(self):
        call(ZERO, "checkpoint", "export", self.at("c"), self.at("e"), "--tag", "step-4")
        whole = tensors(self.at("e/model.safetensors"))
        self.assertEqual(whole, tensors(self.at("m/model.safetensors")))
        call(ZERO, "checkpoint", "export", self.at("c"), self.at("s"), "--tag", "step-4", "--max-shard-size", "100KB")
        with open(self.at("s/model.safetensors.index.json")) as file:
            index = json.load(file)
        files = {name: tensors(os.path.join(self.at("s"), name)) for name in set(index["weight_map"].values())}
        self.assertGreater(len(files), 2)
        self.assertEqual({name: files[file][name] for name, file in index["weight_map"].items()}, whole)
        self.assertEqual(index["metadata"]["total_size"], sum(len(t[2]) for t in whole.values()))
        call(ZERO, "checkpoint", "export", self.at("c"), self.at("b"), "--dtype", "bf16")
        self.assertEqual({t[0] for t in tensors(self.at("b/model.safetensors")).values()}, {"BF16"})
        call(ZERO, "checkpoint", "export", self.at("c"), self.at("b"), "--max-shard-size", "5 apples", code=10)

    def test_weights_that_do_not_fit_are_named_by_their_file(self):
        with open(self.at("m/model.safetensors"), "rb") as file:
            data = file.read()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        wrapped = json.dumps({name if name == "__metadata__" else "module." + name: entry
                              for name, entry in header.items()}).encode()
        with open(self.at("wrapped.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(wrapped)) + wrapped + data[8 + length:])
        text = train(1, "--steps", "1", "--init", self.at("wrapped.safetensors"), code=15)
        self.assertIn('the file has module.transformer.', text)
        self.assertIn("the file's names begin with \"module.\"", text)
        os.mkdir(self.at("pickled"))
        for name, hint in (("pytorch_model.bin", "save the model as safetensors"), ("other.safetensors", "give that file")):
            open(self.at("pickled/" + name), "w").close()
            text = train(1, "--steps", "1", "--init", self.at("pickled"), code=15)
            self.assertIn(f"has neither model.safetensors nor its index, but \"{name}\"", text)
            self.assertIn(hint, text)
            os.remove(self.at("pickled/" + name))

    def test_model_in_several_files(self):
        copy = self.at("several-c")
        call("cp", "-r", self.at("c"), copy)
        train(3, "--set", "train_batch_size=9", "--steps", "4", "--stage", "3", "--checkpoint", copy, "--resume",
              "step-4", "--overwrite-later", "--save-model", self.at("several"), "--max-shard-size", "100KB")
        with open(self.at("several/model.safetensors.index.json")) as file:
            index = json.load(file)
        files = {name: tensors(os.path.join(self.at("several"), name)) for name in set(index["weight_map"].values())}
        self.assertGreater(len(files), 2)
        self.assertEqual({name: files[file][name] for name, file in index["weight_map"].items()},
                         tensors(self.at("m/model.safetensors")))
        for start in ("m", "several", "several/model.safetensors.index.json"):
            train(2, "--steps", "0", "--init", self.at(start), "--log-json", self.at("init.json"), "--save-model",
                  self.at("again"))
            self.assertEqual(tensors(self.at("again/model.safetensors")), tensors(self.at("m/model.safetensors")))

    def test_diff(self):
        same = call(ZERO, "checkpoint", "diff", self.at("c/step-6"), self.at("c/step-6"))
        self.assertIn("hold the same state", same)
        text = call(ZERO, "checkpoint", "diff", self.at("c/step-6"), self.at("c/step-8"), code=1)
        self.assertIn("step: 6 and 8", text)
        self.assertIn("transformer.wte.weight exp_avg: ", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
