#!/usr/bin/env python3
"""Breaks one place at a time and checks whether a test notices.

usage: tests/mutation/run.py FOLDER [--mutants 26] [--seed 1] [--part NAME]... [--jobs 2] [--again]

Each part of the library gets some mutants, drawn by the seed: one operator, constant, condition or statement is
changed. FOLDER gets a copy of the working tree with all of them, one build of it, and results.jsonl, which a later run
continues; with --again that run repeats the mutants that no test noticed. The environment variable ZERO_MUTANT chooses
the mutant at run time (see schemata.py).

A mutant does not count if it does not compile, or compiles to the same code. It is noticed if a test of its part fails
or takes ten times as long; only tests that reach its place are run. The table at the end has a row for each part;
unnoticed mutants are listed with their lines.

Takes a build of the tests and some seconds for each mutant, so it is not part of ctest.
"""

import argparse
import hashlib
import itertools
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import schemata

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Tests, the quickest first: each runs for all remaining mutants before the next one does.
TESTS = ["equivalence_mpi_n3", "comm_hierarchical_01_n2", "comm_shm_n3", "comm_mpi_n3", "comm_hierarchical_0011_n4",
         "comm_hierarchical_01112_n5", "api_tensor_parallel_2_n4", "zero_config", "config_extremes",
         "block_store_test", "comm_test", "zero_test", "config_attacks", "config_test", "adapter_test",
         "gpu_offload_test", "optimizer_goldens_test", "optim_test", "checkpoint_test", "checkpoint_faults_test",
         "offload_test", "equivalence_test", "mock_device_test", "corruption_test", "resume_test", "background_test",
         "checkpoint_programs", "zero_run_job", "comm_faults", "faults_preemption", "faults_bad_input", "crash_test",
         "checkpoint_kill"]
ENGINE = ["equivalence_mpi_n3", "zero_test", "resume_test", "offload_test", "equivalence_test", "mock_device_test"]
# Sources, and the tests that are run for them.
PARTS = {
    "agreement": (["zero/runtime/*.cpp"],
                  ["zero_test", "equivalence_mpi_n3", "api_tensor_parallel_2_n4", "zero_run_job", "comm_faults",
                   "faults_preemption", "faults_bad_input"]),
    "plan": (["zero/plan/*.cpp"], ["config_test", *ENGINE]),
    "scopes": (["zero/pass/scopes.cpp", "zero/pass/accumulation.cpp", "zero/pass/evaluations.cpp", "zero/pass/pass.cpp",
                "zero/pass/forward_order.cpp", "zero/pass/gradient_use.cpp", "zero/engine/engine.cpp",
                "zero/engine/engine_core.cpp"], [*ENGINE, "background_test"]),
    "transfers": (["zero/pass/transfers.cpp", "zero/pass/plan_walker.cpp", "zero/step/inspection.cpp",
                   "zero/weights/weights.cpp"], ENGINE),
    "step": (["zero/step/stepper.cpp", "zero/step/step_agreement.cpp", "zero/step/updates.cpp", "zero/step/replica_check.cpp",
              "optim/*.cpp", "optim/cpu/host_kernels.cpp"],
             [*ENGINE, "optim_test", "optimizer_goldens_test", "api_tensor_parallel_2_n4"]),
    "state": (["zero/state/*.cpp"],
              [*ENGINE, "checkpoint_test", "block_store_test", "adapter_test", "gpu_offload_test"]),
    "collectives": (["comm/*.cpp", "comm/direct/*.cpp", "comm/hierarchical/*.cpp", "comm/shm/*.cpp", "comm/mpi/*.cpp",
                     "comm/rendezvous/*.cpp"],
                    ["comm_test", "comm_shm_n3", "comm_mpi_n3", "comm_hierarchical_01_n2", "comm_hierarchical_0011_n4",
                     "comm_hierarchical_01112_n5", "zero_run_job", "comm_faults", "faults_bad_input"]),
    "checkpoint": (["zero/checkpoint/*.cpp", "zero/checkpoint/format/*.cpp", "zero/weights/weight_files.cpp",
                    "zero/weights/train_snapshot.cpp"],
                   ["zero_test", "adapter_test", "checkpoint_test", "checkpoint_faults_test", "resume_test",
                    "background_test", "corruption_test", "crash_test", "checkpoint_programs", "checkpoint_kill"]),
    "config": (["config_schemas/*.cpp"], ["config_test", "zero_config", "config_extremes", "config_attacks"]),
}
UNCOUNTED = ("compiler", "nothing changed", "open")


def draw(part, count, seed):
    """Draws the mutants of a part, each on another line if there are enough lines."""
    found = []
    for pattern in PARTS[part][0]:
        for path in sorted(ROOT.glob(pattern)):
            found += schemata.mutants_of(str(path.relative_to(ROOT)), path.read_text())
    random.Random(f"{seed} {part}").shuffle(found)
    lines, first, rest = set(), [], []
    for mutant in found:
        (rest if (mutant.file, mutant.line) in lines else first).append(mutant)
        lines.add((mutant.file, mutant.line))
    return (first + rest)[:count]


def shell(*words, **more):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, errors="replace", **more)


def checked(*words):
    done = shell(*words)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


class Tree:
    """A copy of the sources that holds all mutants, and its build."""

    def __init__(self, folder, jobs):
        self.source, self.build, self.jobs = folder / "source", folder / "build", jobs
        self.reached_file = folder / "reached"
        self.usual_s = {}

    def copy(self, mutants):
        """Writes only files that differ, so that a build after a change is short."""
        for name in checked("git", "-C", ROOT, "ls-files", "-co", "--exclude-standard").splitlines():
            path, copy = ROOT / name, self.source / name
            if not path.is_file():
                continue
            here = [m for m in mutants if m.file == name]
            content = schemata.with_choices(path.read_text(), here).encode() if here else path.read_bytes()
            if not copy.exists() or copy.read_bytes() != content:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(content)
                copy.chmod(path.stat().st_mode)

    def configure(self):
        checked("cmake", "-S", self.source, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DZERO_CUDA=OFF", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
        listed = json.loads(checked("ctest", "--test-dir", self.build, "--show-only=json-v1"))
        # Without Python and tests/support/session.py, since this program ends late tests itself.
        self.tests = {test["name"]: {**test, "command": test["command"][2:]} for test in listed["tests"] if "command" in test}
        commands = json.loads((self.build / "compile_commands.json").read_text())
        self.commands = {command["file"]: command["command"] for command in commands}

    def make(self, tests):
        """Builds the programs of the tests; returns the numbers of mutants that the compiler refuses."""
        programs = {pathlib.Path(word).name for test in tests for word in self.tests[test]["command"]
                    if pathlib.Path(word).parent == self.build / "bin"}
        done = shell("ninja", "-C", self.build, "-j", self.jobs, "-k", 0, *sorted(programs))
        refused = set()
        for match in re.finditer(r"^(\S+?):(\d+):\d+: +(?:fatal error|error|required from here)", done.stdout, re.M):
            before = (self.build / match[1]).read_text().splitlines()[:int(match[2])]
            marked = [numbers for numbers in (re.findall(r"mutant_is\((\d+)\)", line) for line in before) if numbers]
            if marked:
                refused.update(map(int, marked[-1]))
        if done.returncode != 0 and not refused:
            sys.exit(f"The build failed:\n{done.stdout[-8000:]}")
        return refused

    def units_of(self, test):
        """Returns the parts of a test that can run alone: its source files if it is a doctest executable."""
        if not test.endswith("_test"):
            return [test]
        listed = checked(*self.tests[test]["command"], "--list-test-cases", "--reporters=xml")
        return [f"{test} {file}" for file in sorted(set(re.findall(r'filename="[^"]*?([^"/]+)"', listed)))]

    def runs(self, unit, **environment):
        """Returns the result of a test: "passed", "failed", or "late" after ten times its usual time."""
        limit = max(20, 10 * self.usual_s.get(unit, 60))
        name, _, file = unit.partition(" ")
        test = self.tests[name]
        if file:  # the first failure is enough
            command = [*test["command"], f"--source-file=*/{file}", "--abort-after=1"]
            settings = next((p["value"] for p in test["properties"] if p["name"] == "ENVIRONMENT"), [])
            environment |= dict(setting.split("=", 1) for setting in settings)
        else:
            command = ["ctest", "--test-dir", self.build, "-R", f"^{name}$", "--timeout", str(int(limit))]
        start = time.monotonic()
        job = subprocess.Popen(list(map(str, command)), cwd=self.build, env=os.environ | {"ZERO_TESTS_WHOLE": "1"} | environment,
                               start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            failed = job.wait(limit + 10) != 0
        except subprocess.TimeoutExpired:
            failed = True
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        return "passed" if not failed else "late" if time.monotonic() - start > limit - 1 else "failed"

    def reached_by(self, unit):
        """Returns the mutants that a test reaches. It must pass without a mutant; its usual time is stored."""
        self.reached_file.write_bytes(bytes(schemata.NUMBERS))
        start = time.monotonic()
        if self.runs(unit, ZERO_MUTANTS_REACHED=str(self.reached_file)) != "passed" and self.runs(unit) != "passed":
            sys.exit(f"{unit} fails without a mutant")
        self.usual_s[unit] = time.monotonic() - start
        reached = {at for at, mark in enumerate(self.reached_file.read_bytes()) if mark}
        print(f"{unit}: {self.usual_s[unit]:.1f} s, reaches {len(reached)} mutants", flush=True)
        return reached

    def notices(self, unit, mutant):
        end = self.runs(unit, ZERO_MUTANT=str(mutant.number))
        if end == "failed" and " " not in unit:
            # Run twice, because tests that wait for other processes may fail under load, but not two times in a row.
            end = self.runs(unit, ZERO_MUTANT=str(mutant.number))
        return end != "passed"

    def code_of(self, file, text):
        """Returns the compiled code of a source; its path is the same for all texts."""
        path = self.build / "alone" / pathlib.Path(file).name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        source = str(self.source / file)
        command = re.sub(r"-o \S+", f"-o {path}.o", self.commands[source]).replace(source, str(path))
        if shell("sh", "-c", command, cwd=self.build).returncode != 0:
            return None
        return hashlib.sha256(pathlib.Path(f"{path}.o").read_bytes()).hexdigest()

    def changes_code(self, mutant):
        text = (ROOT / mutant.file).read_text()
        code = self.code_of(mutant.file, schemata.with_mutant(text, mutant))
        return code is not None and code != self.code_of(mutant.file, text)


class Results:
    """The results so far, stored in a file; the last line about a mutant counts."""

    def __init__(self, path, drawn, again):
        self.path, self.of = path, {}
        for part, mutants in drawn.items():
            for m in mutants:
                was, broken = (" ".join(text.split()) for text in (m.was, m.broken or "(left out)"))
                self.of[m.number] = dict(number=m.number, part=part, file=m.file, line=m.line, was=was, broken=broken,
                                         noticed_by="open", passed_by=[], reached_by=[])
        for line in path.read_text().splitlines() if path.exists() else []:
            result = json.loads(line)
            if result["number"] in self.of and not (again and result["noticed_by"] in ("", "open")):
                self.of[result["number"]] = result

    def waits_for(self, mutant, test=None):
        result = self.of[mutant.number]
        return result["noticed_by"] == "open" and (
            test is None or (test in PARTS[result["part"]][1] and test not in result["passed_by"]))

    def set(self, mutant, noticed_by="open", reached_by=(), passed_by=None):
        result = self.of[mutant.number]
        result["noticed_by"] = noticed_by
        result["reached_by"] += reached_by
        result["passed_by"] += [passed_by] if passed_by else []
        with open(self.path, "a") as out:
            out.write(json.dumps(result) + "\n")
        if noticed_by != "open":
            print(f"{mutant.file}:{mutant.line}: {noticed_by or 'NOT NOTICED'}", flush=True)

    def table(self):
        results = [r for r in self.of.values() if r["noticed_by"] not in UNCOUNTED]
        print(f"{'part':14} {'mutants':>8} {'noticed':>8}")
        for part in [*PARTS, "all"]:
            of_part = [r for r in results if part in (r["part"], "all")]
            if of_part:
                noticed = sum(bool(r["noticed_by"]) for r in of_part)
                print(f"{part:14} {len(of_part):8} {noticed:8}  {100 * noticed / len(of_part):.0f} %")
        for r in results:
            if not r["noticed_by"]:
                tests = ", ".join(r["reached_by"]) or "no test"
                print(f"\n{r['file']}:{r['line']}, number {r['number']}, reached by {tests}"
                      f"\n  - {r['was']}\n  + {r['broken']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--mutants", type=int, default=26)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    drawn = {part: draw(part, args.mutants, args.seed) for part in args.part or PARTS}
    mutants = list(itertools.chain(*drawn.values()))
    results = Results(args.folder / "results.jsonl", drawn, args.again)
    tree = Tree(args.folder.resolve(), args.jobs)
    while True:
        tree.copy([m for m in mutants if results.of[m.number]["noticed_by"] != "compiler"])
        tree.configure()
        refused = tree.make({test for part in drawn for test in PARTS[part][1]})
        if not refused:
            break
        for mutant in mutants:
            if mutant.number in refused:
                results.set(mutant, noticed_by="compiler")
    for test in TESTS:
        asked = [m for m in mutants if results.waits_for(m, test)]
        reached = {unit: tree.reached_by(unit) for unit in tree.units_of(test)} if asked else {}
        for mutant in asked:
            units = sorted((u for u in reached if mutant.number in reached[u]), key=tree.usual_s.get)
            noticed_by = next((unit for unit in units if tree.notices(unit, mutant)), None)
            if noticed_by:
                results.set(mutant, noticed_by=noticed_by)
            else:
                results.set(mutant, reached_by=units, passed_by=test)
    for mutant in mutants:
        if results.waits_for(mutant):
            results.set(mutant, noticed_by="" if tree.changes_code(mutant) else "nothing changed")
    results.table()


if __name__ == "__main__":
    main()
