"""DeepSpeed's checkpoints as they occur in practice: with any client state, other names and ages. Stored checkpoints
are edited and converted, in one process with torch.

usage: edited_test.py CONVERT DATA        with a python3 that has torch, numpy and xxhash
"""

import argparse
import collections
import contextlib
import datetime
import enum
import hashlib
import importlib.util
import io
import json
import os
import pathlib
import random
import shutil
import struct
import sys
import tempfile
import types
import unittest

try:
    import numpy
    import torch
    import xxhash  # noqa: F401
except ImportError as error:
    print(f"skipped: {sys.executable} has no {error.name}")
    sys.exit(77)

CONVERT, DATA = pathlib.Path(sys.argv[1]).absolute(), pathlib.Path(sys.argv[2]).absolute()
sys.path.insert(0, str(CONVERT.parent))
import convert  # noqa: E402

spec = importlib.util.spec_from_file_location("saved_state", CONVERT.parents[2] / "pytorch/python/zerocore/saved_state.py")
saved_state = importlib.util.module_from_spec(spec)
spec.loader.exec_module(saved_state)

MODEL = "global_step5/mp_rank_00_model_states.pt"
OPTIM = "global_step5/*zero_pp_rank_*optim_states.pt"


def pretend_deepspeed():
    """Defines the classes that the files name, so that Python's own reader accepts them here."""
    for module, names in {"deepspeed.utils.tensor_fragment": ["fragment_address"],
                          "deepspeed.runtime.zero.config": ["ZeroStageEnum"],
                          "deepspeed.runtime.fp16.loss_scaler": ["LossScaler", "DynamicLossScaler"]}.items():
        made = sys.modules[module] = types.ModuleType(module)
        for name in names:
            base = int if name == "ZeroStageEnum" else object
            setattr(made, name, type(name, (base,), {"__module__": module}))
    for parent in ("deepspeed", "deepspeed.utils", "deepspeed.runtime", "deepspeed.runtime.zero",
                   "deepspeed.runtime.fp16"):
        sys.modules[parent] = types.ModuleType(parent)


pretend_deepspeed()


class Kind(enum.Enum):
    ONE = 1


class Attack:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def convert_with(*arguments):
    """Returns (exit code, everything printed)."""
    said = io.StringIO()
    before, sys.argv = sys.argv, ["convert.py", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            convert.main()
        return 0, said.getvalue()
    except SystemExit as exit:
        return 1, said.getvalue() + str(exit.code)
    finally:
        sys.argv = before


class Edited(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.outputs = 0

    def copy(self, kind="stage1"):
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        return pathlib.Path(shutil.copytree(DATA / kind, copy))

    def edit(self, copy, pattern, change, **saving):
        paths = list(copy.glob(pattern))
        self.assertTrue(paths)
        for path in paths:
            state = torch.load(path, weights_only=False)
            change(state)
            torch.save(state, path, **saving)

    def converts(self, source, *options):
        """Returns (output, messages)."""
        self.outputs += 1
        output = self.folder / f"out{self.outputs}"
        code, said = convert_with(source, output, *options)
        self.assertEqual(code, 0, said)
        return output / (output / "latest").read_text().strip(), said

    def refused(self, source, words, *options):
        code, said = convert_with(source, self.folder / "refused", *options)
        self.assertEqual(code, 1, said)
        self.assertIn(words, said)
        self.assertNotIn("Traceback", said)

    def has_values_of(self, kind, output):
        content = (output / "shard-00001-of-00001.safetensors").read_bytes()
        length, = struct.unpack("<Q", content[:8])
        header = json.loads(content[8:8 + length])
        del header["__metadata__"]
        found = {name.removesuffix("@0"): hashlib.sha256(content[8 + length:][slice(*entry["data_offsets"])]).hexdigest()
                 for name, entry in header.items()}
        self.assertEqual(found, json.loads((DATA / kind / "digests.json").read_text()))

    def manifest(self, output):
        return json.loads((output / "manifest.json").read_text())

    def client_state(self, output):
        return saved_state.from_bytes((output / "program_state").read_bytes())["client_state"]

    def test_ranks_sizes_ties_and_buffers(self):
        for kind in ("odd-stage1", "odd-stage2", "odd-stage3", "odd-bf16-stage3", "lora-stage1", "lora-stage2",
                     "lora-stage3"):
            output, _ = self.converts(DATA / kind)
            self.has_values_of(kind, output)
            parameters = {p["name"]: p for p in self.manifest(output)["parameters"]}
            self.assertNotIn("head.weight", parameters)
            self.assertTrue(parameters["mean"]["buffer"] and parameters["batches"]["dtype"] == "I64")
            # Unknown, since stage 1 does not record whether there were any.
            may_lack = kind.startswith("lora") or kind == "odd-stage1"
            self.assertEqual(self.manifest(output).get("without_frozen", False), may_lack, kind)

    def test_client_state_of_a_trainer(self):
        output, said = self.converts(DATA / "odd-stage3")
        state = self.client_state(output)
        self.assertEqual({key: state[key] for key in ("epoch", "best", "name", "done", "nothing", "nested", "args")}, {
            "epoch": 3, "best": 0.25, "name": "run", "done": False, "nothing": None,
            "nested": {"list": [1, 2.5, "three"], "deep": {"on": True}},
            "args": argparse.Namespace(lr=1e-3, layers=[1, 2])})
        self.assertEqual(state["score"], numpy.float64(1.5))
        self.assertEqual(state["array"].tolist(), [0, 1, 2])
        generator = random.Random()
        generator.setstate(state["python_random"])
        self.assertEqual(generator.random(), random.Random(5).random())
        drawn = numpy.random.RandomState()
        drawn.set_state(state["numpy_random"])
        self.assertEqual(drawn.rand(), numpy.random.RandomState(5).rand())
        self.assertEqual(str(state["folder"]), "/runs/a")
        for name in ("color (__main__.Color)", "window (collections.deque)", "counts (collections.defaultdict)",
                     "part (builtins.slice)", "mixed[1] (__main__.Color)"):
            self.assertIn(name, said)
        self.assertFalse({"color", "window", "counts", "part", "mixed", "param_shapes", "ds_config"} & set(state))

    def test_what_cannot_be_read_is_left_out_and_nothing_is_run(self):
        mark = self.folder / "mark"
        loop = {}
        loop["self"] = loop
        for protocol, is_zip in ((2, True), (4, True), (2, False)):
            copy = self.copy()
            self.edit(copy, MODEL, lambda state: state.update(
                bad=Attack(mark), inside={"good": 1, "kind": Kind.ONE}, layer=torch.nn.Linear(2, 2), cls=Kind,
                noise=numpy.array(["text"]), counted=collections.Counter("aab"), word=numpy.str_("a"),
                when=datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc), loop=loop, sparse=torch.eye(2).to_sparse()),
                pickle_protocol=protocol, _use_new_zipfile_serialization=is_zip)
            output, said = self.converts(copy)
            self.has_values_of("stage1", output)
            for words in ("bad (posix.system)", "inside.kind (__main__.Kind)", "layer (torch.nn.modules.linear.Linear)",
                          "cls (__main__.Kind)", "word (numpy.generic)", "when (datetime.datetime)", "nested too deep",
                          "sparse (", "noise (numpy.ndarray)", "counted (collections.Counter)"):
                self.assertIn(words, said)
            state = self.client_state(output)
            self.assertEqual(set(state), {"inside", "loop"})
            self.assertEqual(state["inside"], {"good": 1})
        self.assertFalse(mark.exists())

    def named(self, name, kind="stage1"):
        copy = self.copy(kind)

        def change(state):
            state["ds_config"].pop("optimizer", None)
            if name is not None:
                state["ds_config"]["optimizer"] = {"type": name, "params": {"lr": 0.1}}
        self.edit(copy, MODEL, change)
        return copy

    def test_names_of_optimizers(self):
        for name, taken in (("adam", "Adam"), ("ADAMW", "AdamW"), ("adamw", "AdamW"), ("FusedAdam", "Adam")):
            output, said = self.converts(self.named(name))
            self.has_values_of("stage1", output)
            self.assertEqual(self.manifest(output)["optimizer"]["type"], taken)
            self.assertNotIn("optimizer", said)
        self.refused(self.named("Lion"), "the optimizer Lion is not one of Adam, AdamW, SGD")
        self.refused(self.named("sgd"), "the config says sgd, and the optimizer state has no momentum_buffer; it has "
                     "exp_avg, exp_avg_sq")

    def test_no_optimizer_section(self):
        output, said = self.converts(self.named(None))
        self.has_values_of("stage1", output)
        self.assertIn("by its state (exp_avg, exp_avg_sq) the optimizer is taken for AdamW; --optimizer says otherwise", said)
        output, said = self.converts(self.named(None), "--optimizer", "Adam")
        self.assertEqual(self.manifest(output)["optimizer"], {"type": "Adam", "states": ["exp_avg", "exp_avg_sq"]})
        self.assertNotIn("taken for", said)
        output, said = self.converts(self.named(None, "sgd"))
        self.has_values_of("sgd", output)
        self.assertIn("taken for SGD", said)

    def test_states_that_the_config_does_not_name(self):
        output, said = self.converts(self.named("SGD", "sgd"))
        self.has_values_of("sgd", output)
        self.assertIn("the config's SGD has no momentum, and the optimizer state has a momentum_buffer: it comes over", said)
        copy = self.copy()

        def more(file):
            for state in file["optimizer_state_dict"]["base_optimizer_state"]["state"].values():
                state["max_exp_avg_sq"] = state["exp_avg_sq"].clone()
        self.edit(copy, OPTIM, more)
        output, said = self.converts(copy)
        self.has_values_of("stage1", output)
        self.assertIn("left out: max_exp_avg_sq of the optimizer", said)

    def test_old_layouts(self):
        def no_places(file):
            del file["optimizer_state_dict"]["param_slice_mappings"]

        def elastic(file):
            no_places(file)
            state = file["optimizer_state_dict"]
            base = state["base_optimizer_state"]["state"]
            state["base_optimizer_state"] = [base[group] for group in sorted(base)]

        def old_model(state):
            for key in ("buffer_names", "shared_params", "frozen_param_shapes", "frozen_param_fragments"):
                state.pop(key, None)
        for kind in ("stage1", "stage2"):
            for change in (no_places, elastic):
                copy = self.copy(kind)
                self.edit(copy, OPTIM, change, _use_new_zipfile_serialization=False)
                self.edit(copy, MODEL, old_model)
                for path in copy.glob(OPTIM):
                    path.rename(path.with_name(path.name.replace("_optim_states", "optim_states")))
                self.has_values_of(kind, self.converts(copy)[0])
        self.edit(copy, MODEL, lambda state: state.pop("param_shapes"))
        self.refused(copy, "its model file has no param_shapes")

    def test_counts_and_loss_scale(self):
        copy = self.copy()
        scaler = sys.modules["deepspeed.runtime.fp16.loss_scaler"].DynamicLossScaler()
        scaler.__dict__.update(cur_scale=4096.0, cur_iter=9, last_overflow_iter=4, cur_hysteresis=2, dtype=torch.half)
        self.edit(copy, MODEL, lambda state: state.update(global_samples=None))
        self.edit(copy, OPTIM, lambda file: file["optimizer_state_dict"].update(loss_scaler=scaler))
        output, said = self.converts(copy)
        self.assertIn("does not say after how many samples it was saved; taken: 20", said)
        self.assertEqual(self.manifest(output)["samples"], 20)
        self.assertEqual(self.manifest(output)["loss_scaler"],
                         {"scale": "4096.0", "hysteresis": "2", "iteration": "9", "last_overflow": "4"})

    def test_a_scheduler_of_the_program(self):
        copy = self.copy()

        def change(state):
            del state["ds_config"]["scheduler"]
            state["lr_scheduler"] = {"last_epoch": 5, "_last_lr": [0.1]}
        self.edit(copy, MODEL, change)
        output, _ = self.converts(copy)
        state = saved_state.from_bytes((output / "program_state").read_bytes())
        self.assertEqual(state["lr_scheduler"], {"last_epoch": 5, "_last_lr": [0.1]})
        self.assertEqual(state["global_steps"], 5)

    def test_damage_is_named(self):
        for change in (lambda state: state.update(module=Attack(self.folder / "mark")),
                       lambda state: state.update(param_shapes=5), lambda state: state.pop("global_steps")):
            copy = self.copy()
            self.edit(copy, MODEL, change)
            self.refused(copy, "global_step5: ")
        self.assertFalse((self.folder / "mark").exists())

    def test_ways_to_name_a_checkpoint(self):
        copy = self.copy()
        for text in (b"global_step5\r\n", b"\xef\xbb\xbfglobal_step5\n", b"global_step5  \n\n"):
            (copy / "latest").write_bytes(text)
            self.converts(copy)
        (copy / "latest").write_text("global_step7")
        self.refused(copy, "the checkpoint global_step7 is not in it; name one with --tag, of global_step5")
        (copy / "latest").unlink()
        self.refused(copy, "name one with --tag, of global_step5")
        self.converts(copy, "--tag", "global_step5")
        self.refused(self.folder, "no DeepSpeed checkpoint is in it")
        self.refused(self.folder / "none", "there is no such folder")
        runs = self.folder / "runs"
        for number in (9, 10):
            shutil.copytree(DATA / "stage1", runs / f"checkpoint-{number}")
        (runs / "checkpoint-11").mkdir()
        output, said = self.converts(runs)
        self.assertIn("taking checkpoint-10, the newest one", said)
        for source, options in ((runs, ("--tag", "checkpoint-9")), (runs / "checkpoint-9", ()),
                                (runs / "checkpoint-9" / "global_step5", ())):
            self.has_values_of("stage1", self.converts(source, *options)[0])


unittest.main(argv=sys.argv[:1])
