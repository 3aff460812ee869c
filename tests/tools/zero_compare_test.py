"""zero compare over report.json files. Usage: zero_compare_test.py ZERO REPORT_SAMPLE"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

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
        for name, content in (("empty", ""), ("log", '{"step":1}\n{"step":2}\n')):
            path = pathlib.Path(self.folder.name, name)
            path.write_text(content)
            result = self.compare(str(path))
            self.assertEqual(result.returncode, 10)
            self.assertIn(f"{path} is no report.json", result.stderr)
        result = self.compare(str(pathlib.Path(self.folder.name, "none")))
        self.assertEqual(result.returncode, 10)
        self.assertIn("cannot be read", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
