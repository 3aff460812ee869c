"""Tests zerocore.plan(). Usage: python_plan_test.py FOLDER_OF_THE_PACKAGE"""

import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, sys.argv[1])

import torch  # noqa: E402
import zerocore  # noqa: E402

SIZES = {"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 64, "vocab_size": 100, "n_positions": 32}
CONFIG = {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}


class Plan(unittest.TestCase):
    def test_module_on_meta(self):
        with torch.device("meta"):
            model = torch.nn.Sequential(
                torch.nn.Embedding(1000, 256),
                torch.nn.ModuleList([torch.nn.TransformerEncoderLayer(256, 4) for _ in range(4)]),
                torch.nn.Linear(256, 1000))
        parameters = sum(parameter.numel() for parameter in model.parameters())
        rows = {row["row"]: row for row in zerocore.plan(model, CONFIG, ranks=16)}
        self.assertEqual(rows["config"]["memory"], rows["2"]["memory"])
        self.assertAlmostEqual(rows["0"]["model_state_bytes"] / (16 * parameters), 1, delta=0.02)
        self.assertAlmostEqual(rows["3"]["model_state_bytes"] / parameters, 1, delta=0.05)

    def test_model_by_name_file_dict_and_object(self):
        class Described:
            def to_dict(self):
                return SIZES

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "config.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(SIZES, file)
            plans = [zerocore.plan(model, ranks=2, per_node=2, device="cpu", rows="3") for model in (path, SIZES, Described())]
        self.assertEqual(plans[0], plans[1])
        self.assertEqual(plans[0], plans[2])
        self.assertEqual([row["row"] for row in zerocore.plan("gpt2", rows="0,3")], ["0", "3"])

    def test_errors_are_the_commands(self):
        for arguments, message in ((("gpt5",), "--model gpt5"), (("gpt2", {"zero_optimization": {"stage": 7}}), "stage")):
            with self.subTest(arguments=arguments), self.assertRaisesRegex(zerocore.ConfigError, message):
                zerocore.plan(*arguments)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
