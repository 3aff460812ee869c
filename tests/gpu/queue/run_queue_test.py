"""The queue of tests/gpu.sh over invented entries: each outcome, its line of JSON, the whole log, and a second call."""

import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

import probe
import run_queue
from run_queue import Entry, Queue, session_members

FOLDER = os.path.dirname(os.path.abspath(__file__))


def entry(name, script, part="bits", estimate=0.1, limit=20, **more):
    return Entry(part, name, ["bash", "-c", script], estimate, limit, **more)


class QueueTest(unittest.TestCase):
    def setUp(self):
        run_queue.PATIENCE_S, run_queue.END_S = 0.5, 2
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def call(self, entries, seconds=60, again=(), results="results", done=()):
        """Returns the exit code, and the records written by this call."""
        file = self.folder / results / "results.jsonl"
        before = len(file.read_text().splitlines()) if file.exists() else 0
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            code = Queue(entries, self.folder / results, seconds, done).run_all(again)
        self.printed = printed.getvalue()
        lines = file.read_text().splitlines() if file.exists() else []
        return code, [json.loads(line) for line in lines[before:]]

    def test_every_outcome_is_a_line_and_none_stops_the_queue(self):
        crash = "echo before; kill -SEGV $$"
        code, records = self.call([
            entry("good", "echo figure speed 2.5; echo figure steps 3"), entry("bad", "echo wrong 1>&2; exit 3"),
            entry("crash", crash), entry("absent", "true", needs=("no-such-tool",)),
            entry("unable", "echo skipped: no GPU; exit 77"), entry("hanging", "echo started; sleep 60", limit=0.5),
            Entry("bits", "no program", ["/no/such/program"], 0.1, 1), entry("last", "true")])
        self.assertEqual([record["outcome"] for record in records],
                         ["passed", "failed", "failed", "skipped", "skipped", "hung", "failed", "passed"])
        self.assertEqual(code, 1)
        self.assertEqual(records[0]["figures"], {"speed": 2.5, "steps": 3})
        self.assertEqual([records[i]["why"] for i in (1, 3, 4)],
                         ["wrong", "no-such-tool: not on this machine", "skipped: no GPU"])
        # The record's position in the log is the beginning of the entry's output.
        path, _, line = records[1]["log"].rpartition(":")
        log = pathlib.Path(path).read_text().splitlines()
        self.assertRegex(log[int(line) - 1], "^== bits: bad: bash -c")
        self.assertEqual(log[int(line)], "wrong")
        self.assertIn("started", log)

    def test_skips_and_what_is_missing_are_no_success(self):
        self.assertEqual(self.call([entry("good", "true")], results="a")[0], 0)
        self.assertEqual(self.call([entry("good", "true"), entry("unable", "exit 77")], results="b")[0], 2)

    def test_what_does_not_fit_is_skipped_and_what_fits_behind_it_runs(self):
        code, records = self.call([entry("long", "true", estimate=100), entry("short", "true")], seconds=20)
        self.assertEqual([record["outcome"] for record in records], ["no time", "passed"])
        self.assertIn("takes about 100 s", records[0]["why"])
        self.assertEqual(code, 2)

    def test_the_end_of_the_call_interrupts_and_the_next_call_resumes(self):
        runs = self.folder / "runs"
        entries = [entry("first", f"echo 1 >>{runs}"), entry("failing", f"echo 2 >>{runs}; exit 1"),
                   entry("slow", f"echo 3 >>{runs}; [ -e {self.folder}/faster ] || sleep 60"), entry("last", "true", estimate=2)]
        start = time.monotonic()
        code, records = self.call(entries, seconds=3.5)
        self.assertLess(time.monotonic() - start, 3.5)
        self.assertEqual([record["outcome"] for record in records], ["passed", "failed", "interrupted", "no time"])
        (self.folder / "faster").touch()
        # An incomplete line, which a machine leaves that is taken away.
        with open(self.folder / "results/results.jsonl", "a") as file:
            file.write('{"name": "sl\n')
        code, records = self.call(entries, done=())
        self.assertEqual([(record["name"], record["outcome"]) for record in records], [("slow", "passed"), ("last", "passed")])
        self.assertEqual(code, 1)
        self.assertEqual(runs.read_text().split(), ["1", "2", "3", "3"])
        # On a fresh machine, using the results of the old one.
        code, records = self.call(entries, results="fresh", done=[self.folder / "results/results.jsonl"], again=["fail*"])
        self.assertEqual([record["name"] for record in records], ["failing"])

    def test_a_probe_that_fails_ends_the_call_and_runs_in_each(self):
        late = entry("late", "true")
        code, records = self.call([entry("probe", "echo missing: libx; exit 11", part="probe"), late])
        self.assertEqual((code, [record["outcome"] for record in records]), (1, ["failed"]))
        self.assertIn("stopped", self.printed)
        good = entry("probe", "true", part="probe")
        self.call([good, late])
        self.assertEqual([record["name"] for record in self.call([good, late])[1]], ["probe"])

    def test_no_process_is_left_behind(self):
        pids = self.folder / "pids"
        # A process in its own group that ignores signals, as a rank may do.
        script = f"set -m; trap '' TERM; sleep 61 & echo $$ >{pids}; wait; sleep 61"
        _, records = self.call([entry("deaf", script, limit=0.5)])
        self.assertEqual(records[0]["outcome"], "hung")
        self.assertEqual(session_members(int(pids.read_text())), [])


class ProbeTest(unittest.TestCase):
    def probe(self, **environment):
        command = [sys.executable, "-I", os.path.join(FOLDER, "probe.py"), "/no/such/folder"]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, env={"PATH": os.environ["PATH"], **environment})

    def test_missing_libraries_are_named_with_the_folders(self):
        run = self.probe(ZERO_CUDA_MAJOR="99")
        self.assertEqual(run.returncode, 11, run.stderr)
        self.assertRegex(run.stdout, r"missing: .*libcublasLt\.so\.99 is .*libnvrtc\.so\.99 is")
        self.assertIn("searched: ", run.stdout)

    def test_the_folders_of_pip_are_found_first(self):
        with tempfile.TemporaryDirectory() as name:
            library = pathlib.Path(name, "nvidia/nccl/lib/libnccl.so.2")
            library.parent.mkdir(parents=True)
            library.touch()
            sys.path.append(name)
            try:
                self.assertIn(str(library.parent), probe.search_path().split(":"))
            finally:
                sys.path.remove(name)


class EntriesTest(unittest.TestCase):
    def test_names_are_unique_and_scripts_exist(self):
        import gpu_entries
        for tiny in (False, True):
            entries = list(gpu_entries.make(tiny))
            self.assertEqual(len({e.name for e in entries}), len(entries))
            for e in entries:
                self.assertLess(e.estimate_s, e.limit_s, e.name)
                for word in e.command:
                    if word.endswith(".py"):
                        self.assertTrue(os.path.exists(word), word)
        self.assertEqual(tuple(dict.fromkeys(e.part for e in entries)), gpu_entries.ALL)

    def test_what_tells_most_comes_first_and_all_fits_into_half_an_hour(self):
        import gpu_entries
        entries = list(gpu_entries.make())
        self.assertEqual([entry.name for entry in entries][:5],
                         ["libraries, driver and programs", "PyTorch modules, next to a plain loop",
                          "modules that failed, kernel by kernel", "kernels, streams, one rank",
                          "the trainer's kernels, models and loop"])
        self.assertLessEqual(sum(entry.estimate_s for entry in entries), 1800)
        first = sum(entry.estimate_s for entry in entries if entry.part in gpu_entries.PARTS["first"])
        self.assertLessEqual(first, 554)  # of 560 s
        # Each part fits into a call of ten minutes.
        self.assertLess(max(entry.limit_s for entry in entries), 590)


class ProfileTest(unittest.TestCase):
    """Replaces the output of Nsight Compute."""

    def test_a_step_is_what_lies_between_two_verdicts(self):
        sys.path.append(os.path.join(os.path.dirname(os.path.dirname(FOLDER)), "bench"))
        import gpu_profile
        names = ["init", "decide_kernel(int)", "void gpt::cuda::(anonymous namespace)::norm<__nv_bfloat16, 4>(gpt::Rows<T1>)",
                 "gemm<(int)3>(Params)", "zero::optim::decide_kernel(int)", "more"]
        rows = ['==PROF== Connected', '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
        for i, name in enumerate(names):
            for metric, unit, value in ((gpu_profile.TIME, "us", "1,000.5"), (gpu_profile.READ, "Mbyte", "2"),
                                        (gpu_profile.WRITTEN, "byte", "500")):
                rows.append(f'"{i}","{name}","{metric}","{unit}","{value}"')
        step = gpu_profile.one_step(gpu_profile.launches("\n".join(rows)))
        self.assertEqual([launch.name for launch in step], ["norm<__nv_bfloat16, 4>", "gemm<(int)3>", "decide_kernel"])
        self.assertEqual(step[0][1:], (1000500.0, 2000500.0))
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            gpu_profile.tell(step, 4.3e12)
        self.assertTrue(re.search(r"figure kernels_ms 3\.00", printed.getvalue()), printed.getvalue())


if __name__ == "__main__":
    unittest.main()
