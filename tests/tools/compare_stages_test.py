"""The table of examples/compare_stages.py. Usage: compare_stages_test.py PATH_OF_COMPARE_STAGES"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = ""


def step(number, **changes):
    return {"step": number, "loss": 3.0 - number, "loss_bits": f"{number:08x}", "grad_norm": 1.0,
            "grad_norm_bits": "3f800000", "lr": 1e-3, "tokens_per_s": 100.0 * number, "step_ms": 1.0,
            "skipped": False, **changes}


def summary(**changes):
    rank = {"memory": {"parameters": {"planned": 4000000, "peak": 4000000}, "file": {"planned": 0, "peak": 0}},
            "sent": {"all_gather": {"calls": 4, "bytes": 6000000}, "all_to_all": {"calls": 0, "bytes": 0}}}
    return {"summary": {"ranks": [rank, rank], "parameter_count": 1000000, "digest": "aa", "layout_hash": "bb",
                        **changes}}


class CompareStages(unittest.TestCase):
    def compare(self, *runs):
        with tempfile.TemporaryDirectory() as folder:
            arguments = []
            for index, records in enumerate(runs):
                path = os.path.join(folder, f"{index}.jsonl")
                with open(path, "w") as file:
                    file.writelines(json.dumps(record) + "\n" for record in records)
                arguments.append(f"run {index}={path}")
            return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)

    def test_equal_runs(self):
        run = [step(1), step(2), summary()]
        result = self.compare(run, run)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = {line[:28].strip(): line.split()[-2:] for line in result.stdout.splitlines()}
        self.assertEqual(rows["bits equal"], ["yes", "yes"])
        self.assertEqual(rows["parameters"], ["4.00", "4.00"])
        self.assertEqual(rows["all gather"], ["3.00", "3.00"])
        self.assertEqual(rows["final loss"], ["1.000000", "1.000000"])
        self.assertNotIn("file", rows)
        self.assertNotIn("all to all", rows)

    def test_every_kind_of_other_bits_shows(self):
        good = [step(1), step(2), summary()]
        for other in ([step(1, loss_bits="0"), step(2), summary()], [step(1), step(2, grad_norm_bits="0"), summary()],
                      [step(1), step(2), summary(digest="ab")], [step(1), step(2, skipped=True), summary()],
                      [step(1), summary()]):
            result = self.compare(good, good, other)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertRegex(result.stdout, r"bits equal +yes +yes +NO\n")

    def test_losses_beyond_json(self):
        result = self.compare([step(1, loss=None), summary()])
        self.assertRegex(result.stdout, r"final loss +not finite\n")

    def test_unusable_logs(self):
        for records, message in (([step(1)], "did not finish"), ([], "did not finish")):
            result = self.compare(records)
            self.assertEqual(result.returncode, 10)
            self.assertIn(message, result.stderr)


if __name__ == "__main__":
    SCRIPT = sys.argv.pop(1)
    unittest.main()
