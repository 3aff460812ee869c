"""Compares the planner with published runs, and docs/plan-validation.md with its output.

Usage: published_test.py ZERO REPOSITORY
"""

import os
import statistics
import sys
import unittest

import published

ZERO, REPOSITORY = sys.argv[1:3]


class Published(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.results, cls.own = (list(published.compare(ZERO, rows)) for rows in ("rows", "own"))

    def test_errors(self):
        for row, seconds, simulated, _ in self.results:
            with self.subTest(row=row):
                self.assertLess(abs(simulated / seconds - 1), 0.10)
        self.assertLess(statistics.median(published.errors(self.results)), 0.06)

    def test_own_runs(self):
        for row, seconds, simulated, _ in self.own:
            with self.subTest(row=row):
                self.assertLess(abs(simulated / seconds - 1), 0.15)

    def test_at_most_one_row_of_a_cluster_decides_a_constant(self):
        clusters = [row["cluster"] for row, _, _, reference in self.results if reference]
        self.assertEqual(len(clusters), len(set(clusters)))

    def test_page(self):
        with open(os.path.join(REPOSITORY, "docs/plan-validation.md"), encoding="utf-8") as file:
            page = file.read()
        for lines in (published.lines(self.results), published.own_lines(self.own), published.estimator_lines(ZERO)):
            for line in lines:
                self.assertIn(line + "\n", page)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
