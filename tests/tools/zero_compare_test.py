"""zero compare over report.json files. Usage: zero_compare_test.py ZERO REPORT_SAMPLE"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ZERO, SAMPLE = sys.argv[1:3]


class Compare(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.reports = {}
        for name in ("plain", "awkward", "plan", "failed", "nothing"):
            directory = pathlib.Path(self.folder.name, name)
            subprocess.run([SAMPLE, name, directory], check=True)
            self.reports[name] = str(directory / "report.json")

    def compare(self, *arguments):
        return subprocess.run([ZERO, "compare", *arguments], capture_output=True, text=True, errors="replace")

    def test_one_report(self):
        result = self.compare(self.reports["plain"])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^ +stage 0 +stage 1$")
        self.assertRegex(result.stdout, r"(?m)^bits equal +yes +yes$")

    def test_other_bits_show_in_the_exit_code(self):
        result = self.compare(self.reports["awkward"])
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"(?m)^bits equal +yes +yes +yes +NO +NO +NO$")
        self.assertEqual(result.stderr, "zero: the bits differ\n")

    def test_several_reports_become_one(self):
        again = pathlib.Path(self.folder.name, "again")
        result = self.compare(self.reports["plain"], self.reports["plain"], "--report", str(again))
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads((again / "report.json").read_text())
        self.assertEqual([variant["name"] for variant in report["variants"]],
                         [f"{self.reports['plain']}: stage {stage}" for stage in (0, 1, 0, 1)])
        self.assertTrue((again / "report.html").stat().st_size > 1000)

    def test_a_report_is_named_by_its_directory_too(self):
        directory = str(pathlib.Path(self.reports["plain"]).parent)
        by_file, by_directory = self.compare(self.reports["plain"]), self.compare(directory)
        self.assertEqual(by_directory.returncode, 0, by_directory.stderr)
        self.assertEqual(by_directory.stdout, by_file.stdout)
        self.assertIn(f"{directory}: stage 0", self.compare(directory, directory).stdout)
        result = self.compare(self.folder.name)
        self.assertEqual(result.returncode, 10)
        self.assertIn(f"directory {self.folder.name} has no report.json; expected the directory that --report wrote to",
                      result.stderr)

    def log(self, name, steps, digest="00000000deadbeef", **summary):
        path = pathlib.Path(self.folder.name, name)
        records = [{"step": number, "loss": loss, "loss_bits": "7fc00000", "grad_norm": 0.5, "grad_norm_bits": "3f000000",
                    "tokens_per_s": 100.0, "skipped": False} for number, loss in steps]
        summary = {"parameter_count": 12, "digest": digest, "ranks": [{}, {}], **summary}
        path.write_text("".join(json.dumps(record) + "\n" for record in [{"state": {}}, *records, {"summary": summary}]))
        return str(path)

    def test_logs_of_runs(self):
        steps = [(1, 5.5), (2, 4.25), (3, None)]
        one, again, other = self.log("one", steps), self.log("again", steps), self.log("other", [*steps[:2], (3, 4.0)])
        weights = self.log("weights", steps, digest="00000000deadbeee")
        folder = pathlib.Path(self.folder.name, "report")
        equal = self.compare(one, again, "--report", str(folder))
        self.assertEqual(equal.returncode, 0, equal.stderr)
        self.assertRegex(equal.stdout, r"(?m)^bits equal +yes +yes$")
        picture = (folder / "loss.svg").read_text()
        self.assertEqual(xml.etree.ElementTree.fromstring(picture).tag, "{http://www.w3.org/2000/svg}svg")
        self.assertEqual(picture.count("<path"), 1)
        self.assertIn("all, to the last bit", picture)
        for changed in (other, weights):
            self.assertEqual(self.compare(one, changed).returncode, 1)
        # A report has all that a log has.
        self.assertEqual(self.compare(str(folder), "--report", str(folder)).returncode, 0)

    def test_logs_that_are_refused(self):
        for name, steps, summary, problem in (
                ("late", [(2, 1.0)], {}, "step 1 is missing before step 2"),
                ("gap", [(1, 1.0), (3, 1.0)], {}, "step 2 is missing before step 3"),
                ("digest", [(1, 1.0)], {"digest": "0xyz"}, '"0xyz" is no hexadecimal number'),
                ("ended", [(1, 1.0)], {"ranks": []}, "it has no summary; the run has not come to its end")):
            with self.subTest(log=name):
                result = self.compare(self.log(name, steps, **summary))
                self.assertEqual(result.returncode, 10)
                self.assertIn(f"is no log of a run of train_gpt --log-json: {problem}", result.stderr)
        path = pathlib.Path(self.folder.name, "cut")
        path.write_text('{"step": 1}\n{"step": ')
        self.assertIn("a line lacks a value", self.compare(str(path)).stderr)
        path.write_text('{"variant": "stage 1", "step": 1}\n')
        self.assertIn("give the directory of its --report", self.compare(str(path)).stderr)

    def test_a_plan_has_no_bits(self):
        for reports in (("plain", "plan"), ("plan", "plain")):
            with self.subTest(reports=reports):
                result = self.compare(*(self.reports[name] for name in reports))
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertNotIn("NO", result.stdout)
                self.assertRegex(result.stdout, r"(?m)^bits equal +yes +yes$")
                self.assertIn(f"{self.reports['plan']}: stage 3 are plans: they have no bits.", result.stdout)
                self.assertRegex(result.stdout, r"(?m)^planned( +\d+\.\d+){4}$")
        result = self.compare(self.reports["plan"], self.reports["plan"])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("bits equal", result.stdout.lower())

    def test_what_did_not_run_shows_in_the_exit_code(self):
        for name in ("failed", "nothing"):
            result = self.compare(self.reports[name])
            self.assertEqual(result.returncode, 1)
            self.assertIn("stage 1: cannot reserve 12.00 GiB", result.stdout)
            self.assertEqual(result.stderr, "zero: not all that was asked for ran\n")
        both = self.compare(self.reports["plain"], self.reports["failed"])
        self.assertEqual(both.returncode, 1)
        self.assertIn(f"{self.reports['failed']}: stage 2: did not run.", both.stdout)

    def test_unusable_files(self):
        for name, content, text in (("empty", "", " is no report.json"), ("text", "step 1\n", ": does not begin with {")):
            path = pathlib.Path(self.folder.name, name)
            path.write_text(content)
            result = self.compare(str(path))
            self.assertEqual(result.returncode, 10)
            self.assertIn(f"{path}{text}", result.stderr)
        result = self.compare(str(pathlib.Path(self.folder.name, "none")))
        self.assertEqual(result.returncode, 10)
        self.assertIn("cannot be read", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
