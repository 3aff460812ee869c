"""Whether pages agree with each other and with the programs: status, versions, commands with their options, configs, keys, files.

Usage: pages_test.py REPOSITORY --zero FILE [--train-gpt FILE]
"""

import argparse
import functools
import pathlib
import re
import subprocess
import tempfile
import unittest

ARGS = None
GROUPS = ("config", "checkpoint", "completion")  # commands that have commands
# Options on the pages that are of no program of this repository.
FOREIGN = set("""--allow-run-as-root --bind-to --exclusive --gpus-per-node --kill-on-bad-exit --local_rank --max-restarts --mca --mem
--mpi --nnodes --no-kill --num_nodes --rdzv-backend --rdzv-endpoint --signal --target""".split())


def text_of(path):
    return (ARGS.repository / path).read_text(encoding="utf-8")


def pages():
    return sorted(str(path.relative_to(ARGS.repository)) for folder in (".", "docs", "examples", ".github")
                  for path in (ARGS.repository / folder).glob("**/*.md" if folder == ".github" else "*.md"))


@functools.cache
def help_of(program, *command):
    done = subprocess.run([program, *command, "--help"], capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else ""


@functools.cache
def options_of(program, *command):
    """Returns {option: whether a value follows it} according to the program's help."""
    found = {}
    for line in help_of(program, *command).splitlines():
        match = re.match(r"\s+((?:-[\w-]+)(?:, ?-[\w-]+)*)(?: (\S+))?", line)
        if match:
            takes = bool(match[2]) and (match[2][0].isupper() or match[2][0] in "<[{(")
            found |= {option.strip().replace("_", "-"): takes for option in match[1].split(",")}
    return found


def commands_on(page):
    """Returns the command lines that begin with `zero` and a command, without comments and prompts."""
    text = re.sub(r"\\\n\s*", " ", text_of(page))
    lines = re.findall(r"^ {4,}(?:\$ )?(?:[A-Z_]+=\S+ )*(zero [^\n]*)$", text, re.M) + re.findall(r"`(zero [^`\n]*)`", text)
    split = [line.split("#")[0].replace("...", "").split() for line in lines]
    return [words for words in split if len(words) > 1 and re.fullmatch("[a-z]+", words[1])]


@functools.cache
def keys():
    """Returns the keys of docs/config.md, which is generated from the table of keys."""
    return {key for cell in re.findall(r"^\| ([^|]*`[^|]*) \|", text_of("docs/config.md"), re.M) for key in re.findall("`([^`]+)`", cell)}


@functools.cache
def sources():
    """Returns the text of all scripts and of programs for tests."""
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for folder in ("scripts", "tests", "examples", "pytorch")
                     for path in (ARGS.repository / folder).rglob("*") if path.suffix in (".sh", ".py"))


def problem_of(words):
    """Returns what is wrong with the command, or nothing. It is read up to a program that it starts."""
    command = [words[1]]
    rest = words[2:]
    if command[0] in GROUPS and rest and re.fullmatch("[a-z]+", rest[0]):
        command.append(rest.pop(0))
    options = options_of(ARGS.zero, *command)
    if not options:
        return f"zero {' '.join(command)} is no command"
    if command == ["config", "explain"] and rest and re.fullmatch(r"[a-z_.0-9]+(?<!\.json)", rest[0]) and subprocess.run(
            [ARGS.zero, *command, rest[0]], capture_output=True, timeout=60).returncode:
        return f"{rest[0]} is no key"
    while rest:
        word = rest.pop(0).strip("[]")
        if "train_gpt" in word and ARGS.train_gpt:
            known = options_of(ARGS.train_gpt)
            return next((f"train_gpt has no {other}" for other in rest if other.startswith("--") and other.replace("_", "-") not in known), "")
        if not word.startswith("-"):
            if command[0] in ("run", "tune"):
                return ""
        elif (option := word.split("=")[0].replace("_", "-")) not in options:
            return f"zero {' '.join(command)} has no {word}"
        elif options[option] and rest and "=" not in word:
            rest.pop(0)
    return ""


class Pages(unittest.TestCase):
    def test_commands(self):
        shown = 0
        for page in pages():
            for words in commands_on(page):
                shown += 1
                with self.subTest(page=page, command=" ".join(words)):
                    self.assertEqual(problem_of(words), "")
        self.assertGreater(shown, 60)
        for wrong, problem in (("zero pln --ranks 2", "zero pln is no command"),
                               ("zero plan --ranks 2 --devices a100", "zero plan has no --devices"),
                               ("zero config explian zero_optimization.stage", "zero config explian is no command"),
                               ("zero config explain zero_optimization.stge", "zero_optimization.stge is no key"),
                               ("zero run -n 2 train_gpt --step 3", "train_gpt has no --step" if ARGS.train_gpt else "")):
            self.assertEqual(problem_of(wrong.split()), problem)

    def test_options_of_train_gpt(self):
        """Also under other launchers."""
        if not ARGS.train_gpt:
            self.skipTest("there is no train_gpt in this build")
        for page in pages():
            text = re.sub(r"\\\n\s*", " ", text_of(page))
            for line in re.findall(r"^ {4,}(?!.*\.py).*\btrain_gpt (-[^\n]*)$", text, re.M):
                for option in re.findall(r"(?<=\s)--[\w-]+", " " + line.split("#")[0]):
                    with self.subTest(page=page, option=option):
                        self.assertIn(option.replace("_", "-"), options_of(ARGS.train_gpt))

    def test_options_in_the_text(self):
        """Each is one of zero, train_gpt, a script, or a program of others that is listed here."""
        commands = set(re.findall(r"(?m)^  ([a-z]+) ", help_of(ARGS.zero)))
        self.assertGreater(len(commands), 8)
        known = set().union(*(options_of(ARGS.zero, command) for command in commands), options_of(ARGS.zero),
                            *(options_of(ARGS.zero, *command) for group in GROUPS
                              for command in [(group, inner) for inner in re.findall(r"(?m)^  ([a-z]+) ", help_of(ARGS.zero, group))]),
                            options_of(ARGS.train_gpt) if ARGS.train_gpt else ())
        for page in pages():
            for option in set(re.findall(r"`(--[a-z][\w-]*)", text_of(page))) - FOREIGN:
                if option.replace("_", "-") not in known and (ARGS.train_gpt or option not in sources()):
                    with self.subTest(page=page, option=option):
                        self.assertRegex(sources(), rf"{re.escape(option)}(?![\w-])")

    def test_files(self):
        """That a page names by their path from the root, or from zero/."""
        folders = "|".join(path.name for path in ARGS.repository.iterdir() if path.is_dir() and path.name[0].isalpha() and path.name != "build")
        for page in pages():
            for path in set(re.findall(rf"(?<![\w/.-])((?:{folders})/[\w./-]*\w\.(?:py|sh|json|cpp|h|sbatch|md|txt))\b", text_of(page))):
                with self.subTest(page=page, path=path):
                    self.assertTrue((ARGS.repository / path).exists() or (ARGS.repository / "zero" / path).exists())

    def test_keys_in_tables(self):
        """Those of a config, whole or without their sections. docs/models.md has those of a model's config.json."""
        shown = 0
        for page in set(pages()) - {"docs/config.md", "docs/models.md"}:
            for table in re.findall(r"^\| key \|.*\n\|[-| ]+\n((?:\|.*\n)+)", text_of(page), re.M):
                for key in re.findall(r"`([a-z_.0-9]+)`", " ".join(line.split(" | ")[0] for line in table.splitlines())):
                    shown += 1
                    with self.subTest(page=page, key=key):
                        self.assertTrue(key in keys() or any(known.endswith("." + key) for known in keys()))
        self.assertGreater(shown, 20)

    def test_configs(self):
        """Every block of JSON on a page is a config that is read; its keys exist."""
        for page in pages():
            for block in re.findall(r"^```json\n(.*?)^```", text_of(page), re.M | re.S):
                with self.subTest(page=page, block=block[:60]), tempfile.TemporaryDirectory() as folder:
                    path = pathlib.Path(folder, "ds_config.json")
                    path.write_text(block)
                    done = subprocess.run([ARGS.zero, "config", "check", path], capture_output=True, text=True, timeout=60)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_status(self):
        status = text_of("docs/status.md")
        rows = [line.replace("](", "](docs/") for line in status.splitlines() if re.match(r"\| (CPUs|one GPU|several GPUs) ", line)]
        self.assertEqual(len(rows), 3)
        for row in rows:
            self.assertIn(row, text_of("README.md"))
        # Other pages do not say in words of their own what the table says.
        for page in set(pages()) - {"docs/status.md", "README.md"}:
            text = " ".join(text_of(page).split())
            for phrase in (r"not (?:yet |been )*tried on (?:a GPU|one)", r"has not run on a GPU", r"written and not",
                           r"GPU \(written", r"One H200 has run", r"tested with \| ?\n"):
                with self.subTest(page=page, phrase=phrase):
                    self.assertIsNone(re.search(phrase, text))
        for page in ("getting-started", "from-deepspeed", "from-fsdp", "gpu", "install", "pytorch"):
            self.assertIn("(status.md)", text_of(f"docs/{page}.md"), page)

    def test_versions(self):
        version = re.search(r"project\(ZeroCore VERSION ([\d.]+)", text_of("CMakeLists.txt"))[1]
        self.assertIn(f"version: {version}\n", text_of("CITATION.cff"))
        self.assertIn(f"version: {version}\n", text_of("packaging/conda/recipe.yaml"))
        self.assertEqual(re.search(r"^## ([\d.]+)", text_of("CHANGELOG.md"), re.M)[1], version)
        for page in pages():
            for shown in re.findall(r"(?i:zerocore)[- ]+(\d+\.\d+\.\d+)", text_of(page)):
                with self.subTest(page=page):
                    self.assertEqual(shown, version)
        oldest_torch = re.search(r"set\(torch_oldest ([\d.]+)\)", text_of("cmake/ZeroTorch.cmake"))[1]
        oldest_python = re.search(r'requires-python = ">=([\d.]+)"', text_of("pyproject.toml"))[1]
        self.assertIn(f'"torch>={oldest_torch}"', text_of("pyproject.toml"))
        oldest_cmake = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)", text_of("CMakeLists.txt"))[1]
        oldest_cuda = re.search(r"find_package\(CUDAToolkit ([\d.]+)", text_of("cmake/ZeroCuda.cmake"))[1]
        oldest_compilers = re.search(r"compiler \| GCC (\d+), clang (\d+) \|", text_of("docs/status.md")).groups()
        # Each way in which pages say these, and how many times they do.
        said = ((r"(?:torch|PyTorch) \(?(\d+\.\d+) or newer", oldest_torch, 1), (r"\| torch \| (\d+\.\d+) \|", oldest_torch, 2),
                (r"from \d+\.\d+ and (\d+\.\d+) on", oldest_torch, 1), (r"from (\d+\.\d+) and \d+\.\d+ on", oldest_python, 1),
                (r"\| Python[^|]*\| (\d+\.\d+) \|", oldest_python, 2),
                (r"CMake (\d+\.\d+)", oldest_cmake, 1), (r"\| CMake, Ninja \| (\d+\.\d+) \|", oldest_cmake, 1),
                (r"for GPUs CUDA (\d+\.\d+)", oldest_cuda, 1), (r"\| CUDA Toolkit[^|]*\| (\d+\.\d+),", oldest_cuda, 1),
                (r"GCC (\d+) or clang \d+", oldest_compilers[0], 1), (r"GCC \d+ or clang (\d+)", oldest_compilers[1], 1),
                (r"\| GCC or clang \| (\d+), \d+", oldest_compilers[0], 1), (r"\| GCC or clang \| \d+, (\d+)", oldest_compilers[1], 1))
        for way, oldest, least in said:
            shown = [(page, version) for page in pages() for version in re.findall(way, text_of(page))]
            self.assertGreaterEqual(len(shown), least, way)
            for page, version in shown:
                with self.subTest(page=page, way=way):
                    self.assertEqual(version, oldest)

    def test_public_ci_runs_what_ci_runs(self):
        self.assertIn("bash .ci/run", text_of(".github/workflows/ci.yml"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("repository", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--zero")
    parser.add_argument("--train-gpt")
    ARGS, rest = parser.parse_known_args()
    unittest.main(argv=["pages_test.py", *rest])
