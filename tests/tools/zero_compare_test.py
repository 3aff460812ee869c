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
        for name in ("plain", "awkward"):
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
