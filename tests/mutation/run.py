#!/usr/bin/env python3
"""Breaks one line at a time and sees whether a test notices.

usage: tests/mutation/run.py FOLDER [--mutants 200] [--seed 1] [--part NAME]... [--jobs 2]

FOLDER gets a copy of the working tree, a build of it, and results.jsonl, which a later run continues; with the same seed
it draws the same mutants. A mutant is one change of one operator, constant, condition or statement. It does not count
where it does not compile, or compiles to the same code. It is noticed where a test of its part fails or takes ten times
as long. The table at the end has a row for each part; what was not noticed is listed with its line.

Takes about half a minute for each mutant, so it is no part of ctest.
"""

import argparse
import hashlib
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

ENGINE = ["zero_test", "equivalence_mpi_n3", "resume_test", "equivalence_test", "offload_test",
          "mock_device_test"]
# Sources, and the tests that are asked, the quickest first.
PARTS = {
    "agreement": (["zero/runtime/*.cpp"],
                  ["zero_test", "equivalence_mpi_n3", "zero_run_job", "comm_faults",
                   "faults_preemption", "faults_bad_input"]),
    "plan": (["zero/plan/*.cpp"], ENGINE),
    "scopes": (["zero/run/scopes.cpp", "zero/run/order_learner.cpp", "zero/run/evaluator.cpp", "zero/run/engine.cpp",
                "zero/run/engine_core.cpp"], ENGINE),
    "transfers": (["zero/run/transfers.cpp", "zero/run/plan_walker.cpp", "zero/run/reduced_gradients.cpp",
                   "zero/run/weights.cpp"], ENGINE),
    "step": (["zero/run/stepper.cpp", "zero/run/updater.cpp", "zero/run/replicas.cpp", "optim/loss_scaler.cpp",
              "optim/gradient_norm.cpp", "optim/lr_schedule.cpp", "optim/optimizer.cpp"], ["optim_test", *ENGINE]),
    "state": (["zero/state/*.cpp"], [*ENGINE, "checkpoint_test", "block_store_test"]),
    "collectives": (["comm/*.cpp", "comm/direct/*.cpp", "comm/hierarchical/*.cpp", "comm/shm/*.cpp", "comm/mpi/*.cpp"],
                    ["comm_test", "comm_shm_n3", "comm_mpi_n3", "comm_hierarchical_01_n2", "comm_hierarchical_0011_n4",
                     "comm_hierarchical_01112_n5", "zero_run_job", "comm_faults"]),
    "checkpoint": (["zero/checkpoint/*.cpp", "zero/run/model_files.cpp"],
                   ["checkpoint_test", "checkpoint_faults_test", "resume_test", "background_test", "corruption_test",
                    "crash_test", "checkpoint_programs", "checkpoint_kill"]),
    "config": (["config_schemas/*.cpp"], ["config_test", "zero_config", "config_extremes", "config_attacks"]),
}

SWAPS = [
    (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "),
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" / ", " * "), (r" % ", " / "), (r" \+= ", " -= "),
    (r" && ", " || "), (r" \|\| ", " && "), (r"\btrue\b", "false"), (r"\bfalse\b", "true"),
    (r"(?<![\w.\"])0(?![\w.\"])", "1"), (r"(?<![\w.\"])1(?![\w.\"])", "0"), (r"(?<![\w.\"])1(?![\w.\"])", "2"),
    (r"std::min\b", "std::max"), (r"std::max\b", "std::min"), (r"\bcontinue;", "break;"), (r"\bbreak;", "continue;"),
    (r"\bif \((?!const|auto|std)", "if (!"), (r"!(?=[\w(])", ""), (r"\+\+", "--"), (r"return true;", "return false;"),
]
CALL = re.compile(r"^\s+[\w.:>\-\[\]]+\([^;]*\);$")  # a statement of its own on one line
ASSIGNMENT = re.compile(r"^\s+[\w.>\-\[\]*]+ [-+|]?= [^;]*;$")


def mutants_of(file, text):
    """(line number, line, broken line) of what can be broken in a source."""
    in_function = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith(" "):
            in_function = line.rstrip().endswith("{") and not line.startswith("namespace")
        code = line.split("//")[0].rstrip()
        if not line.startswith("  ") or not code.strip() or code.lstrip().startswith(("static_assert", "using ", "#")):
            continue
        quoted = [range(*m.span()) for m in re.finditer(r'"(?:\\.|[^"\\])*"', code)]
        if CALL.match(code) or (ASSIGNMENT.match(code) and in_function):
            yield number, line, re.match(r"\s*", line).group() + ";"
        for pattern, replacement in SWAPS:
            for match in re.finditer(pattern, code):
                if not any(match.start() in span for span in quoted):
                    yield number, line, code[:match.start()] + replacement + code[match.end():]


def negated(broken):
    """`if (!` needs the rest of its condition in parentheses where that is on the line."""
    match = re.search(r"\bif \(!(?=[\w(*])", broken)
    if not match:
        return broken
    start, depth = match.end(), 1
    for at in range(start, len(broken)):
        depth += {"(": 1, ")": -1}.get(broken[at], 0)
        if depth == 0:
            return broken[:start] + "(" + broken[start:at] + ")" + broken[at:]
    return broken


def draw(part, count, seed):
    """Mutants of a part, each at another place where there are enough."""
    found = []
    for pattern in PARTS[part][0]:
        for file in sorted(ROOT.glob(pattern)):
            for number, line, broken in mutants_of(file, file.read_text()):
                found.append((str(file.relative_to(ROOT)), number, line, negated(broken)))
    random.Random(f"{seed} {part}").shuffle(found)
    places, first, rest = set(), [], []
    for mutant in found:
        (rest if mutant[:2] in places else first).append(mutant)
        places.add(mutant[:2])
    return first + rest


class Tree:
    """A copy of the sources with a build, in which one line is broken at a time."""

    def __init__(self, folder, jobs):
        self.source, self.build, self.jobs = folder / "source", folder / "build", jobs
        if not self.source.exists():
            shutil.copytree(ROOT, self.source, ignore=shutil.ignore_patterns("build", ".git"), symlinks=True)
            self.shell("cmake", "-S", self.source, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                       "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DZERO_CUDA=OFF", check=True)
        self.shell("ninja", "-C", self.build, "-j", jobs, check=True)
        listed = json.loads(self.shell("ctest", "--test-dir", self.build, "--show-only=json-v1", check=True).stdout)
        self.tests = {test["name"]: test for test in listed["tests"]}
        self.usual_s = {}

    def shell(self, *words, check=False, **more):
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, errors="replace", **more)
        if check and done.returncode != 0:
            sys.exit(f"{' '.join(map(str, words))} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        return done

    def make(self, test):
        """Builds the programs that a test runs."""
        programs = [pathlib.Path(word).name for word in self.tests[test]["command"]
                    if pathlib.Path(word).parent == self.build / "bin"]
        return self.shell("ninja", "-C", self.build, "-j", self.jobs, *programs)

    def passes(self, name):
        """Whether a test passes, within ten times its usual time."""
        limit = max(20, 10 * self.usual_s.get(name, 60))
        start = time.monotonic()
        if name.endswith("_test"):  # an executable of doctest's: the first failure is enough
            command = [*self.tests[name]["command"], "--abort-after=1"]
            environment = next((p["value"] for p in self.tests[name]["properties"] if p["name"] == "ENVIRONMENT"), [])
            try:
                code = self.shell("env", *environment, *command, cwd=self.build, timeout=limit).returncode
            except subprocess.TimeoutExpired:
                code = -1
        else:
            code = self.shell("ctest", "--test-dir", self.build, "-R", f"^{name}$", "--timeout", int(limit)).returncode
        self.usual_s.setdefault(name, time.monotonic() - start)
        return code == 0

    def objects(self, file):
        """What the compiler made of a source: (path, digest) of each object."""
        name = pathlib.Path(file).name + ".o"
        return {o: hashlib.sha256(o.read_bytes()).hexdigest() for o in self.build.rglob(name)}

    def noticed_by(self, mutant, tests):
        """The first test that fails; "compiler", "nothing changed" or "" otherwise."""
        file, number, _, broken = mutant
        path = self.source / file
        whole = path.read_text()
        before = self.objects(file)
        lines = whole.splitlines(keepends=True)
        lines[number - 1] = broken + "\n"
        path.write_text("".join(lines))
        try:
            objects = [str(o.relative_to(self.build)) for o in before]
            if self.shell("ninja", "-C", self.build, "-j", self.jobs, *objects).returncode != 0:
                return "compiler"
            if self.objects(file) == before:
                return "nothing changed"
            for test in tests:
                if self.make(test).returncode != 0:
                    return "linker"
                if not self.passes(test) and (test.endswith("_test") or not self.passes(test)):
                    return test  # what waits for other processes fails by load too, but not twice
            return ""
        finally:
            path.write_text(whole)


def table(results):
    print(f"{'part':14} {'mutants':>8} {'noticed':>8}")
    for part in [*PARTS, "all"]:
        of_part = [r for r in results if part in (r["part"], "all")]
        if of_part:
            noticed = sum(bool(r["noticed_by"]) for r in of_part)
            print(f"{part:14} {len(of_part):8} {noticed:8}  {100 * noticed / len(of_part):.0f} %")
    for r in results:
        if not r["noticed_by"]:
            print(f"\n{r['file']}:{r['line']}\n  - {r['was'].strip()}\n  + {r['broken'].strip()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    tree = Tree(args.folder.resolve(), args.jobs)
    file = args.folder / "results.jsonl"
    results = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    parts = args.part or list(PARTS)
    queues = {part: draw(part, args.mutants, args.seed) for part in parts}
    for part in parts:
        for test in PARTS[part][1]:
            if test in tree.usual_s:
                continue
            if test not in tree.tests or tree.make(test).returncode != 0 or not tree.passes(test):
                sys.exit(f"{test} is missing, or fails without a mutant")
    known = {(r["file"], r["line"], r["broken"]) for r in results}
    while sum(r["noticed_by"] not in ("compiler", "nothing changed") for r in results) < args.mutants:
        part = min(parts, key=lambda p: sum(r["part"] == p and r["noticed_by"] not in ("compiler", "nothing changed")
                                            for r in results))
        mutant = queues[part].pop(0)
        if (mutant[0], mutant[1], mutant[3]) in known:
            continue
        noticed_by = tree.noticed_by(mutant, PARTS[part][1])
        results.append(dict(part=part, file=mutant[0], line=mutant[1], was=mutant[2], broken=mutant[3],
                            noticed_by=noticed_by))
        with open(file, "a") as out:
            out.write(json.dumps(results[-1]) + "\n")
        print(f"{mutant[0]}:{mutant[1]}: {noticed_by or 'NOT NOTICED'}", flush=True)
    table([r for r in results if r["noticed_by"] not in ("compiler", "nothing changed")])


if __name__ == "__main__":
    main()
