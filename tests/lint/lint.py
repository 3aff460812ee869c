"""Checks rules of the source tree that no compiler checks. Usage: lint.py [REPOSITORY]

Prints one line per finding, FILE:LINE: RULE: the problem, and exits with 1 if there is any.
"""

import os
import re
import sys

from words import Words

CPP = (".h", ".cpp", ".inl", ".cu", ".cuh")
CODE = CPP + (".py", ".sh", ".cmake", "CMakeLists.txt", ".ci/run")
TEXT = CODE + (".md", ".json", ".in", ".yml", ".yaml")
MAX_LINES = 600
MAX_LINES_OF_LIBRARIES = 400

# Longest prefix wins: a file belongs to the most specific of these.
FOLDERS = ("zero/base", "zero/plan", "zero/runtime", "zero/state", "zero/checkpoint/format", "zero/checkpoint", "zero/pass",
           "zero/step", "zero/weights", "zero/engine", "zero/monitor", "zero", "comm", "optim", "offload", "config_schemas", "pytorch", "tools", "examples", "tests")

# Each room of train_gpt may include those before it.
GPT_ROOMS = ("model", "data", "cpu", "cuda", "train")
GPT_ROOM = re.compile(r"examples/gpt/(\w+)/")

# Each room of the engine may include those before it.
ENGINE_ROOMS = ("pass", "step", "weights", "engine")
BELOW_THE_ENGINE = ("zero", "zero/base", "zero/plan", "zero/runtime", "zero/state", "zero/checkpoint/format",
                    "zero/checkpoint", "comm", "optim", "offload")

# The folders, or single files, that a folder may include in addition to itself.
EDGES = {
    "zero/base": (),
    "comm": ("zero/base",),
    "optim": ("zero/base",),
    "offload": ("zero/base",),
    # The top of zero/ holds the public headers.
    "zero": ("zero/base", "optim/options.h", "optim/loss_scaler.h"),
    "zero/plan": ("zero", "zero/base", "optim", "offload/block_file.h", "comm/pair_counts.h", "comm/reduce_groups.h", "comm/wire/codec.h", "comm/wire/layout.h"),
    "zero/runtime": ("zero", "zero/base", "comm", "optim"),
    "zero/state": ("zero", "zero/base", "zero/plan", "zero/runtime", "comm", "optim", "offload"),
    "zero/checkpoint/format": ("zero/base",),
    "zero/checkpoint": ("zero", "zero/base", "zero/checkpoint/format", "zero/plan/step_plan.h", "zero/runtime", "comm"),
    **{f"zero/{room}": BELOW_THE_ENGINE + tuple(f"zero/{other}" for other in ENGINE_ROOMS[:floor])
       for floor, room in enumerate(ENGINE_ROOMS)},
    "zero/monitor": ("zero", "zero/base"),
    "config_schemas": ("zero", "zero/base", "zero/plan/config_fields.h", "zero/plan/key_rows.h", "zero/plan/elasticity.h", "zero/plan/pipeline_schedule.h", "zero/plan/placement.h",
                       "comm/reduce_groups.h", "comm/wire/codec.h", "optim/lr_schedule.h", "optim/options.h",
                       "optim/loss_scaler.h"),
    "tools": FOLDERS,
    "tests": FOLDERS,
    # These may also include the public headers:
    "pytorch": ("comm/loaded_mpi/library.h", "tools/doctor", "tools/planner", "tools/report", "zero/base/notice.h"),
    "examples": ("tools/options", "tools/planner", "tools/report", "pytorch/module.h", "zero/base/input_file.h",
                 "zero/base/number_text.h", "zero/base/output_file.h", "zero/base/simd.h", "zero/base/spelling.h",
                 "zero/checkpoint/model_directory.h"),
}
ON_PUBLIC_HEADERS = ("pytorch", "examples")
JSON_FOLDERS = ("config_schemas", "zero/checkpoint/format", "zero/monitor", "tools", "examples", "tests")

# Public headers are these and the headers that they include; the last two may name their vendor's types.
PUBLIC = ("zero/zero.h", "zero/config.h", "zero/testing.h", "zero/mpi.h", "zero/cuda.h", "zero/rendezvous.h",
          "zero/saved_weights.h", "zero/schedule.h", "zero/monitor/monitor.h", "zero/monitor/diagnostics.h", "zero/base/cpu/thread_pool.h")
VENDOR_PUBLIC = ("zero/mpi.h", "zero/cuda.h")

POSIX = ("sys/", "linux/", "netinet/", "arpa/", "net/")
C_HEADERS = frozenset(
    "aio.h alloca.h cpuid.h dirent.h dlfcn.h errno.h fcntl.h fenv.h immintrin.h limits.h netdb.h poll.h "
    "pthread.h sched.h semaphore.h signal.h spawn.h time.h ucontext.h unistd.h x86intrin.h".split())
CUDA_HEADERS = re.compile(r"(cuda|cublas|cudnn|curand|nvtx|cub/|cooperative_groups)")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CONDITION = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|elifdef|elifndef)\b(.*)")
FEATURE = re.compile(r"CUDA|NCCL|NVCC|(?<![A-Za-z])(O?MPI|MPICH)(?![A-Za-z])|<?mpi\.h|(?i:cuda\w*\.h|nccl\.h)")
VENDOR_TYPE = re.compile(r"\b(MPI_[A-Z]\w*|cuda[A-Z]\w*|cublas\w+|cudnn\w+|nccl[A-Z]\w*|nlohmann::\w+|Eigen::\w+|"
                         r"dnnl\w*::\w+|CUstream|CUevent)\b")
VENDOR_INCLUDE = re.compile(r"^(mpi\.h|cuda|cublas|cudnn|nccl|nlohmann/|Eigen/|oneapi/|dnnl|hwy/|CLI/|doctest/)")
# The formatter puts blanks around < and > if they are comparisons.
STAGE = r"(?:\w+(?:\.|->|::))*(?:\w*_)?stage_?(?:\(\))?"
STAGE_COMPARED = re.compile(rf"\b{STAGE}\)?\s*(==|!=|<=|>=|(?<=\s)[<>](?=\s))"
                            rf"|(==|!=|<=|>=|(?<=\s)[<>](?=\s))\s*(?:[\w<>]+\()?{STAGE}\b(?!\s*[(:<])"
                            rf"|\bswitch\s*\([^)]*\b{STAGE}\b")
# Text with the stage's value: of the key itself, not of a message about it.
STAGE_TEXT = re.compile(r'\b(find|is_given)\([^;]*"zero_optimization\.stage"')
MARKS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
# "5GB" is the form of a value in options of Hugging Face's tools; our own text has a blank.
DECIMAL_UNIT = re.compile(r"\b[kKMGT]B\b")
ALIAS = re.compile(r"^(?:using|namespace) (\w+) = (.+);")
CONSTANT = re.compile(r"^constexpr [\w:<>, ]+?[ &*](\w+)(?:\[\w*\])?(?:\{| =)")
FURTHER_CONSTANT = re.compile(r"\}, (\w+)\{")
OPENMP = re.compile(r'#\s*pragma\s+omp\b|_Pragma\s*\(\s*"omp\b|#\s*include\s*<omp\.h>')


class Lint:
    def __init__(self, root):
        self.root = root
        self.findings = []
        self.lines = {path: self.read(path) for path in sorted(self.walk())}
        self.public = self.closure(PUBLIC)

    def walk(self):
        for folder, folders, files in os.walk(self.root):
            relative = os.path.relpath(folder, self.root).replace(os.sep, "/")
            relative = "" if relative == "." else relative + "/"
            # Skips build trees, and hidden folders except the one with the CI command.
            folders[:] = [f for f in folders
                          if (f == ".ci" or not f.startswith(".")) and f != "__pycache__"
                          and not (relative == "" and f.startswith("build"))]
            for name in files:
                if (relative + name).endswith(TEXT):
                    yield relative + name

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
            return file.read().split("\n")

    def closure(self, roots):
        """Returns these headers and our headers that they include, directly or not."""
        seen = set()
        todo = [path for path in roots if path in self.lines]
        while todo:
            path = todo.pop()
            if path in seen:
                continue
            seen.add(path)
            todo += [name for _, name in includes(self.lines[path]) if name in self.lines]
        return seen

    def report(self, path, line, rule, message):
        self.findings.append(f"{path}:{line}: {rule}: {message}")

    def run(self):
        words = Words(self.report)
        for path, lines in self.lines.items():
            self.check_marks(path, lines)
            words.check(path, lines)
            if path.endswith(CODE):
                self.check_length(path, lines)
            if path.endswith(CPP + (".md",)) and not path.startswith("tests/"):
                self.check_units(path, lines)
            if path.endswith(CPP) and folder_of(path):
                code = without_comments(lines)
                self.check_includes(path, lines)
                self.check_conditions(path, code)
                self.check_stages(path, code)
                self.check_openmp(path, lines)
                self.check_public(path, code)
        words.end()
        self.check_unity()
        return self.findings

    def check_marks(self, path, lines):
        for number, line in enumerate(lines, 1):
            if match := MARKS.search(line):
                self.report(path, number, "marks", f"{match[0]}: do it, or write an issue")

    def check_length(self, path, lines):
        count = len(lines) - (lines[-1] == "")
        most = MAX_LINES_OF_LIBRARIES if path.startswith(("zero/", "comm/", "optim/", "offload/")) else MAX_LINES
        if count > most:
            self.report(path, count, "length", f"{count} lines; {most} at most")

    def check_units(self, path, lines):
        for number, line in enumerate(lines, 1):
            if match := DECIMAL_UNIT.search(line):
                self.report(path, number, "units", f"{match[0]}: bytes are in KiB, MiB and GiB; see zero/base/number_text.h")

    def check_includes(self, path, lines):
        folder = folder_of(path)
        for number, name in includes(lines):
            target = folder_of(name)
            if target is None:
                self.check_foreign(path, folder, number, name)
            elif not in_order(path, name):
                self.report(path, number, "edge", f"may not include {name}: rooms in their order are {', '.join(GPT_ROOMS)}")
            elif not self.may_include(folder, target, name):
                allowed = "public headers" if folder in ON_PUBLIC_HEADERS else ", ".join(EDGES[folder]) or "std alone"
                self.report(path, number, "edge", f"{folder} may not include {name} (allowed: {allowed})")

    def may_include(self, folder, target, name):
        if target == folder or target in EDGES[folder] or name in EDGES[folder]:
            return True
        return folder in ON_PUBLIC_HEADERS and (name in self.public or name.startswith(EDGES[folder]))

    def check_foreign(self, path, folder, number, name):
        if name.startswith("nlohmann/") and folder not in JSON_FOLDERS:
            self.report(path, number, "json", f"{folder} may not use nlohmann_json")
        quoted = self.lines[path][number - 1].split("include", 1)[1].strip().startswith('"')
        if quoted and folder not in ("tests", "examples"):
            self.report(path, number, "edge", f'"{name}": include paths start at the repository root')
        standard = "." not in name or name.startswith(POSIX) or name in C_HEADERS
        in_cuda = path.startswith("zero/base/cuda/") and CUDA_HEADERS.match(name)
        if folder == "zero/base" and "/" in name and not name.startswith(POSIX):
            standard = False
        if folder == "zero/base" and not quoted and not standard and not in_cuda:
            self.report(path, number, "edge", f"zero/base may include std alone, not <{name}>")

    def check_conditions(self, path, code):
        joined, start = "", 0
        for number, line in enumerate(code, 1):
            start = start if joined else number
            joined += line
            if joined.endswith("\\"):
                joined = joined[:-1]
                continue
            match = CONDITION.match(joined)
            if match and FEATURE.search(match[2]):
                self.report(path, start, "feature-macro",
                            "no conditional on CUDA, NCCL or MPI: a folder per back end, chosen by CMake")
            joined = ""

    def check_stages(self, path, code):
        if path.startswith(("zero/plan/placement", "tests/")):
            return
        for number, line in enumerate(code, 1):
            if STAGE_COMPARED.search(without_strings(line)) or STAGE_TEXT.search(line):
                self.report(path, number, "stage", "stages are compared in zero/plan/placement alone; ask the placements")

    def check_unity(self):
        """A unity build compiles the files of a folder as one, so one name has one meaning there."""
        first = {}  # {(folder, name): (the type, or the constant's file; the file that has the name first)}
        for path, lines in self.lines.items():
            if not path.endswith(".cpp") or path.startswith("tests/"):
                continue
            for number, line in enumerate(lines, 1):
                for name, means in unity_names(path, line):
                    meant, other = first.setdefault((os.path.dirname(path), name), (means, path))
                    if meant != means:
                        self.report(path, number, "unity", f"{name} is another thing in {other}: take another name, since a "
                                    "unity build compiles both as one file")

    def check_openmp(self, path, lines):
        for number, line in enumerate(lines, 1):
            if OPENMP.search(line):
                self.report(path, number, "openmp", "OpenMP changes sums with its threads: use the thread pool")

    def check_public(self, path, code):
        if path not in self.public or path in VENDOR_PUBLIC:
            return
        for number, line in enumerate(code, 1):
            match = INCLUDE.match(line)
            if match and VENDOR_INCLUDE.match(match[2]):
                self.report(path, number, "public", f"a public header may not include {match[2]}")
            elif match := VENDOR_TYPE.search(without_strings(line)):
                self.report(path, number, "public", f"a public header may not name the vendor's {match[0]}")


def unity_names(path, line):
    """Yields the aliases and constants that a line defines, with what they mean."""
    if match := ALIAS.match(line):
        yield match[1], match[2]
    elif match := CONSTANT.match(line):
        for name in [match[1]] + FURTHER_CONSTANT.findall(line):
            yield name, path


def in_order(path, name):
    """Returns whether a file of train_gpt may include another one."""
    rooms = [match and match[1] for match in (GPT_ROOM.match(path), GPT_ROOM.match(name))]
    return None in rooms or GPT_ROOMS.index(rooms[1]) <= GPT_ROOMS.index(rooms[0])


def folder_of(path):
    for folder in FOLDERS:
        if path.startswith(folder + "/"):
            return folder
    return None


def includes(lines):
    for number, line in enumerate(lines, 1):
        if match := INCLUDE.match(line):
            yield number, match[2]


def without_strings(line):
    if INCLUDE.match(line):
        return line
    return re.sub(r'"(\\.|[^"\\])*"', '""', line)


def without_comments(lines):
    """Returns the lines with comments blanked; comment marks inside string literals are kept."""
    result, inside = [], False
    for line in lines:
        kept, at = "", 0
        while at < len(line):
            if inside:
                end = line.find("*/", at)
                inside, at = end < 0, len(line) if end < 0 else end + 2
            elif line.startswith("//", at):
                break
            elif line.startswith("/*", at):
                inside, at = True, at + 2
            elif literal := re.match(r'"(\\.|[^"\\])*"', line[at:]):
                kept, at = kept + literal[0], at + literal.end()
            else:
                kept, at = kept + line[at], at + 1
        result.append(kept)
    return result


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(here))
    findings = Lint(root).run()
    print("\n".join(findings) if findings else "lint: no findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
