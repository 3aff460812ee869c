"""Compares README.md and docs/ with the code and the programs.

Usage: readme_test.py REPOSITORY --zero FILE --config-keys FILE --example FILE [--train-gpt FILE]
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
import unittest

import extract

ARGS = None
RANKS, MICRO_STEPS = 3, 3
# Public methods of Engine that no page needs.
UNLISTED = {"reduces_each_micro_step": "for the adapter of PyTorch, which declares micro steps last by itself"}


def text_of(path):
    with open(os.path.join(ARGS.repository, path), encoding="utf-8") as file:
        return file.read()


def output_of(*command):
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: code {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def pages():
    docs = sorted(os.listdir(os.path.join(ARGS.repository, "docs")))
    return ["README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md", *["docs/" + name for name in docs if name.endswith(".md")]]


def anchors_of(page):
    titles = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def section(markdown, title):
    """Returns the text below a heading, up to the next one of its level."""
    match = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", markdown, re.MULTILINE | re.DOTALL)
    if not match:
        raise AssertionError(f"there is no section {title}")
    return match[1]


def rows(markdown):
    """Returns the cells of all table rows, without headings and rules."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")]
             for line in markdown.splitlines() if line.startswith("|")]
    rules = [i for i, row in enumerate(cells) if set(row[0]) == {"-"}]
    return [row for i, row in enumerate(cells) if i not in rules and i + 1 not in rules]


def value_of(formula, **values):
    """Evaluates a formula in the tables' notation: 2Ψ + 14Ψ/N, (m+1)bΨf."""
    formula = formula.split(", or less")[0].rstrip(" *").replace("Ψ", "P")
    return eval(re.sub(r"(?<=[0-9A-Za-z)])(?=[A-Za-z(])", "*", formula), {"__builtins__": {}}, values)


def listed_headers():
    """Returns the headers for programs that CMake lists."""
    return set(re.findall(r"(?:zero|pytorch)/[\w/]+\.h", text_of("cmake/ZeroInstall.cmake")))


def public_headers():
    """Returns these and all that they include."""
    included, unread = set(), list(listed_headers())
    while unread:
        header = unread.pop()
        if header not in included and os.path.exists(os.path.join(ARGS.repository, header)):
            included.add(header)
            unread += re.findall(r'^#include ["<]((?:zero|optim|comm|pytorch)/[\w/]+\.h)', text_of(header), re.MULTILINE)
    return included


class Pages(unittest.TestCase):
    def test_readme_is_short(self):
        self.assertLessEqual(text_of("README.md").count("\n"), 200)

    def test_links_lead_somewhere(self):
        for page in pages():
            for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
                with self.subTest(page=page, target=target):
                    name, _, anchor = target.partition("#")
                    path = os.path.normpath(os.path.join(os.path.dirname(page), name)) if name else page
                    self.assertTrue(os.path.exists(os.path.join(ARGS.repository, path)))
                    if anchor:
                        self.assertIn(anchor, anchors_of(path))

    def test_files_of_the_architecture_exist(self):
        """Names without a folder at the root are in zero/, as the page says."""
        roots = ("comm/", "optim/", "offload/", "config_schemas/", "pytorch/", "tools/", "examples/", "tests/", "docs/")
        for name in re.findall(r"`([\w/]+\.(?:h|cpp|py|md))`", text_of("docs/architecture.md")):
            path = name if name.startswith(roots) else "zero/" + name
            self.assertTrue(os.path.exists(os.path.join(ARGS.repository, path)), f"docs/architecture.md names {name}")

    def test_headers_that_are_installed_are_those_of_the_page(self):
        """The table names those that CMake lists, and none that a program cannot include."""
        named = set(re.findall(r"\]\(\.\./([\w/]+\.h)\)", section(text_of("docs/install.md"), "Headers")))
        self.assertLessEqual(listed_headers(), named)
        included = public_headers()
        self.assertLessEqual(named, included)
        for page in pages():  # a program's own include of a header
            for header in re.findall(r'^ *#include ["<]((?:zero|pytorch)/[\w/]+\.h)[">]', text_of(page), re.MULTILINE):
                self.assertIn(header, included, page)

    def test_calls_of_the_table_are_in_public_headers(self):
        """A name without a class is a function or the engine's, or of the class that the cell has named before."""
        code = re.sub(r" *//.*", "", "\n".join(text_of(header) for header in public_headers()))
        classes = {name: (base, body) for name, base, body in
                   re.findall(r"^(?:class|struct) (?:\[\[\w+\]\] )?(\w+)(?: final)?(?: : public (\w+))?[^;{]*\{(.*?)^\};", code, re.M | re.S)}
        calls = [row[0] for row in rows(section(text_of("docs/cpp.md"), "Calls"))]
        self.assertGreater(len(calls), 20)
        for cell in calls:
            owner = "Engine"
            for given, name, call in re.findall(r"`(?:(\w+)::)?(\w+)(\(?)", cell):
                owner = given or owner
                with self.subTest(call=f"{owner}::{name}"):
                    if not call or name == "Engine":
                        self.assertIn(name, classes)
                    elif not re.search(rf"^\w[\w:<>&* ]* {name}\(", code, re.M):
                        bodies, each = "", owner
                        while each in classes:
                            bodies, each = bodies + classes[each][1], classes[each][0]
                        self.assertTrue(re.search(rf"[ *&]{name}\(", bodies))

    def test_methods_of_the_engine_are_on_pages(self):
        """On docs/cpp.md, or on a page that it links."""
        cpp = text_of("docs/cpp.md")
        linked = {page for page in re.findall(r"\]\(([\w-]+\.md)", cpp)}
        shown = "\n".join([cpp, *(text_of(f"docs/{page}") for page in linked)])
        public = re.search(r"^class Engine \{\n public:\n(.*?)^ private:", text_of("zero/zero.h"), re.M | re.S)[1]
        methods = set(re.findall(r"^  (?=\w)[^\n(]*?[ *&](\w+)\(", public, re.M)) | set(re.findall(r"^  (\w+)\(", public, re.M))
        self.assertGreater(len(methods), 40)
        for method in methods - set(UNLISTED):
            with self.subTest(method=method):
                self.assertTrue(re.search(rf"\b{method}\(", shown))

    def test_map_has_every_folder(self):
        first_cells = " ".join(row[0] for row in rows(section(text_of("docs/architecture.md"), "Map")))
        mapped = set(re.findall(r"`(\w+)/`", first_cells))
        folders = {name for name in os.listdir(ARGS.repository)
                   if os.path.isdir(os.path.join(ARGS.repository, name))
                   and not name.startswith((".", "build", "dist", "__"))}
        self.assertEqual(mapped, folders)

    def test_environment_variables(self):
        read = set()
        for folder in ("zero", "comm", "optim", "config_schemas", "tools", "examples"):
            for path, _, names in os.walk(os.path.join(ARGS.repository, folder)):
                for name in names:
                    if name.endswith((".cpp", ".h")):
                        source = text_of(os.path.join(path, name))
                        read |= set(re.findall(r'(?:getenv\(|chosen\(|(?:generation|kept)_variable =)\s*"(ZERO_\w+)"', source))
        self.assertEqual(set(re.findall(r"`(ZERO_\w+)`", text_of("docs/environment.md"))), read)

    def test_exit_codes(self):
        declared = re.findall(r"class (\w+) : public detail::CodedError<(\d+)>", text_of("zero/base/error.h"))
        listed = [(row[1].strip("`"), row[0]) for row in rows(text_of("docs/exit-codes.md"))
                  if re.fullmatch(r"`\w+`", row[1])]
        self.assertEqual(sorted(listed), sorted(declared))


class ConfigKeys(unittest.TestCase):
    def test_keys_on_the_pages_exist(self):
        known = {key for row in rows(text_of("docs/config.md")) for key in re.findall(r"`([^`]+)`", row[0])}
        for page in pages():
            for key in re.findall(r"`((?:zero_core|zero_optimization|bf16|fp16|aio|data_types|checkpoint)(?:\.\w+)+)`",
                                  text_of(page)):
                with self.subTest(page=page, key=key):
                    self.assertIn(key, known)

    def test_keys_in_the_readme_are_honored(self):
        keys = [key for row in rows(section(text_of("README.md"), "Config")) for key in re.findall(r"`([^`]+)`", row[1])]
        self.assertTrue(keys)
        self.assertLessEqual(set(keys), set(output_of(ARGS.config_keys).split()))


class Programs(unittest.TestCase):
    def test_example_prints_the_same_at_every_stage(self):
        config = json.loads(extract.block(os.path.join(ARGS.repository, "docs/cpp.md"), "json"))
        printed = {}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "ds_config.json")
            for stage in (3, 0):
                config["zero_optimization"]["stage"] = stage
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(config, file)
                printed[stage] = output_of(ARGS.zero, "run", "-n", "2", ARGS.example, path)
        self.assertEqual(printed[3], printed[0])
        losses = [float(loss) for loss in re.findall(r"loss (\S+)", printed[0])]
        self.assertEqual(len(losses), 5)
        self.assertLess(losses[-1], losses[0] / 10)

    def test_options_of_the_trainer(self):
        if not ARGS.train_gpt:
            self.skipTest("there is no train_gpt in this build")
        known = output_of(ARGS.train_gpt, "--help").replace("-", "_")
        for option in re.findall(r"--([\w-]+)", section(text_of("README.md"), "Training GPT-2 or Llama")):
            self.assertIn("__" + option.replace("-", "_"), known)


class Sizing(unittest.TestCase):
    """Compares docs/sizing.md with the output of the programs."""

    @classmethod
    def setUpClass(cls):
        cls.page = text_of("docs/sizing.md")
        cls.folder = tempfile.TemporaryDirectory()
        cls.config = os.path.join(cls.folder.name, "ds_config.json")
        with open(cls.config, "w", encoding="utf-8") as file:
            file.write(extract.block(os.path.join(ARGS.repository, "docs/sizing.md"), "json"))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_planner(self):
        commands = re.findall(r"^    \$ zero (plan .*)$", self.page, re.MULTILINE)
        self.assertEqual(len(commands), 3)
        for command in commands:
            for line in output_of(ARGS.zero, *command.replace("ds_config.json", self.config).split()).splitlines():
                self.assertIn(f"    {line}".rstrip() + "\n", self.page)


class StageTables(unittest.TestCase):
    """Runs the trainer for every row of the tables, and measures. Padding is at most `tolerance`."""

    tolerance = 0.03
    model = {"model_type": "gpt2", "n_layer": 8, "n_head": 2, "n_embd": 64, "n_positions": 16, "vocab_size": 256}
    states = ("parameters", "gradients", "master_weights", "optimizer_state")

    @classmethod
    def setUpClass(cls):
        if not ARGS.train_gpt:
            raise unittest.SkipTest("there is no train_gpt in this build")
        cls.memory = rows(section(text_of("README.md"), "Stages"))
        traffic = rows(section(text_of("docs/comparing-stages.md"), "Traffic"))
        cls.traffic = [row for row in traffic if row[0][0].isdigit()]
        cls.groups = [row for row in traffic if row not in cls.traffic]
        cls.inside = rows(section(text_of("docs/multi-node.md"), "Sharding inside of nodes"))

    def summary(self, row, *settings, ranks=RANKS):
        with tempfile.TemporaryDirectory() as folder:
            log, model = os.path.join(folder, "log.jsonl"), os.path.join(folder, "config.json")
            with open(model, "w", encoding="utf-8") as file:
                json.dump(self.model, file)
            settings += (f"zero_optimization.stage={row[0][0]}", "train_micro_batch_size_per_gpu=1",
                         f"gradient_accumulation_steps={MICRO_STEPS}")
            if "reshard_after_forward" in row[0]:
                settings += ("zero_core.reshard_after_forward=false",)
            options = [word for setting in settings for word in ("--set", setting)]
            output_of(ARGS.zero, "run", "-n", str(ranks), ARGS.train_gpt, "--model", model, "--steps", "1",
                      "--log-json", log, *options)
            with open(log, encoding="utf-8") as file:
                return json.loads(file.readlines()[-1])["summary"]

    def near(self, measured, expected, least=1.0):
        self.assertLess(measured, expected * (1 + self.tolerance))
        self.assertGreater(measured, expected * least * (1 - self.tolerance))

    def bytes_of(self, summary):
        return max(sum(rank["memory"][name]["peak"] for name in self.states) for rank in summary["ranks"])

    def sent(self, summary):
        return max(sum(use["bytes"] for use in rank["sent"].values()) for rank in summary["ranks"])

    def test_tables_have_the_same_rows(self):
        self.assertEqual(len(self.stages()), 5)
        self.assertEqual([row[0] for row in self.stages()], [row[0] for row in self.traffic])
        self.assertEqual((len(self.memory), len(self.groups), len(self.inside)), (6, 1, 3))

    def stages(self):
        return [row for row in self.memory if "shard_group_size" not in row[0]]

    def test_memory(self):
        for row in self.stages():
            for dtype, formula in (("fp32", row[2]), ("bf16", row[3])):
                with self.subTest(row=row[0], dtype=dtype):
                    summary = self.summary(row, f"bf16.enabled={str(dtype == 'bf16').lower()}")
                    expected = value_of(formula, P=summary["parameter_count"], N=RANKS)
                    self.near(self.bytes_of(summary), expected)

    group = ("zero_core.shard_group_size=2",)
    over_all = (*group, "zero_core.optimizer_over_all_ranks=true")
    copies = ("zero_optimization.zero_hpz_partition_size=2",)

    def test_memory_in_groups(self):
        hybrid = [row[2:] for row in self.memory if "shard_group_size" in row[0]][0][:2]
        tables = [(hybrid, self.group), *zip((row[2:4] for row in self.inside), (self.group, self.over_all, self.copies))]
        for formulas, settings in tables:
            for bf16, formula in zip(("false", "true"), formulas):
                with self.subTest(settings=settings, bf16=bf16):
                    summary = self.summary("3", f"bf16.enabled={bf16}", *settings, ranks=4)
                    self.near(self.bytes_of(summary), value_of(formula, P=summary["parameter_count"], N=4, S=2))

    def test_traffic_in_groups(self):
        for formula, sync in zip(self.groups[0][1:], ("inner", "last", "each")):
            for settings in (self.group, self.over_all):
                with self.subTest(settings=settings, sync=sync):
                    summary = self.summary("3", f"zero_core.gradient_sync={sync}", *settings, ranks=4)
                    expected = value_of(formula, P=summary["parameter_count"], b=4, m=MICRO_STEPS, S=2, s=0.5, r=0.5)
                    self.near(self.sent(summary), expected, 0.8)

    def test_traffic_and_the_memory_of_the_other_sync(self):
        for row, memory in zip(self.traffic, self.stages()):
            for sync, formula in zip(("last", "each"), row[1:]):
                with self.subTest(row=row[0], sync=sync):
                    summary = self.summary(row, f"zero_core.gradient_sync={sync}")
                    count = summary["parameter_count"]
                    expected = value_of(formula, P=count, b=4, m=MICRO_STEPS, f=(RANKS - 1) / RANKS)
                    self.near(self.sent(summary), expected, 0.8 if "or less" in formula else 1.0)
                    states = value_of(memory[2], P=count, N=RANKS)
                    if not formula.endswith("*"):  # according to the text below the table
                        states += 4 * count / RANKS if sync == "each" else 4 * count * (RANKS - 1) / RANKS
                    self.near(self.bytes_of(summary), states)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("repository")
    for program in ("--zero", "--config-keys", "--example", "--train-gpt"):
        parser.add_argument(program)
    ARGS, rest = parser.parse_known_args()
    ARGS.repository = os.path.abspath(ARGS.repository)
    unittest.main(argv=["readme_test.py", *rest])
