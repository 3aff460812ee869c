"""Every rule of lint.py, and the one on libraries in symbols.py, accepts a good sample and finds a bad one."""

import os
import tempfile
import unittest

from lint import Lint
from symbols import check_libraries, linked_libraries
from words import PHRASES

GOOD = {
    "zero/zero.h": '#include <vector>\n#include "zero/base/dtype.h"\n#include "zero/config.h"\n',
    "zero/config.h": '#include "optim/options.h"\nstruct Z { int stage = 0; };\n',
    "zero/mpi.h": "#include <mpi.h>\nvoid adopt(MPI_Comm);\n",
    "zero/base/dtype.h": "#pragma once\n#include <cstdint>\n#include <sys/mman.h>\n#include <unistd.h>\n",
    "zero/base/device.h": "",
    "zero/base/cuda/stream.cu": "#include <cuda_runtime.h>\n",
    "zero/engine/engine.cpp": '#include "comm/world.h"\n#include "optim/options.h"\n#include "zero/base/device.h"\n',
    "zero/plan/placement.cpp": "bool f(int stage) { return stage >= 2; }\n",
    "zero/checkpoint/format/header.cpp": '#include <nlohmann/json.hpp>\n#include "zero/base/dtype.h"\n',
    "comm/world.h": '#include "zero/base/dtype.h"\n// if MPI, then stage == 3\n#if defined(__AVX2__)\n#endif\n',
    "optim/options.h": "#ifdef __COMPILER\n#endif\n",
    "config_schemas/load.cpp": '#include <nlohmann/json.hpp>\n#include "zero/config.h"\n'
                               'void f() { log << "stage == 3" << config.stage << std::vector<Stage>{}; }\n',
    "examples/mlp.cpp": "#include <zero/zero.h>\n#include <zero/base/dtype.h>\n",
    "tests/zero/engine_test.cpp": '#include "comm/world.h"\nfor (int stage = 0; stage < 4; ++stage) {}\n',
    "docs/a.md": "A mark is a MARK.\n",
}
MARK = "TO" + "DO"


class Rules(unittest.TestCase):
    def findings(self, **changes):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**GOOD, **changes.pop("files", {})}.items():
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(root, path), "w") as file:
                    file.write(text)
            return Lint(root).run()

    def finds(self, rule, path, text):
        found = self.findings(files={path: text})
        self.assertTrue(any(f.startswith(path + ":") and f": {rule}: " in f for f in found),
                        f"{rule} not found in {text!r}; found {found}")

    def finds_in_each(self, rule, files):
        found = self.findings(files=files)
        for path, text in files.items():
            self.assertTrue(any(f.startswith(path + ":") and f": {rule}: " in f for f in found),
                            f"{rule} not found in {text!r}; found {found}")

    def accepts(self, path, text):
        self.assertEqual(self.findings(files={path: text}), [], text)

    def test_good_tree(self):
        self.assertEqual(self.findings(), [])

    def test_edges(self):
        for path, target in (
                ("zero/base/a.cpp", "zero/config.h"), ("zero/base/a.cpp", "comm/world.h"),
                ("comm/a.cpp", "optim/options.h"), ("comm/a.cpp", "zero/zero.h"),
                ("optim/a.cpp", "comm/world.h"), ("offload/a.cpp", "comm/world.h"),
                ("comm/a.cpp", "offload/tier.h"), ("zero/a.cpp", "config_schemas/load.h"),
                ("zero/checkpoint/format/a.cpp", "zero/engine.h"), ("config_schemas/a.cpp", "comm/world.h"),
                ("zero/engine/a.cpp", "tools/zero/run.h"), ("zero/a.h", "zero/pass/scopes.h"),
                ("zero/pass/a.cpp", "zero/step/stepper.h"), ("zero/step/a.cpp", "zero/weights/weights.h"),
                ("zero/weights/a.cpp", "zero/engine/engine_core.h"), ("zero/pass/a.cpp", "zero/engine/engine_core.h"),
                ("zero/plan/a.cpp", "zero/state/state.h"), ("zero/plan/a.cpp", "zero/runtime/ranks.h"),
                ("zero/state/a.cpp", "zero/pass/scopes.h"), ("zero/runtime/a.cpp", "zero/state/state.h"),
                ("zero/checkpoint/a.cpp", "zero/engine/engine_core.h"),
                ("zero/checkpoint/a.cpp", "zero/state/state.h"), ("zero/checkpoint/format/a.cpp", "zero/checkpoint/checkpoint_directory.h"), ("optim/a.cpp", "tests/support/x.h"),
                ("examples/gpt/model/a.h", "examples/gpt/cpu/b.h"), ("examples/gpt/cuda/a.h", "examples/gpt/train/b.h"),
                ("examples/a.cpp", "comm/world.h"), ("examples/a.cpp", "zero/engine.h"),
                ("examples/a.cpp", "zero/base/device.h"), ("examples/a.cpp", "tools/zero/launcher.h"), ("pytorch/a.cpp", "zero/pass/scopes.h"),
                ("zero/engine/a.cpp", "pytorch/module.h"), ("examples/a.cpp", "pytorch/operations.h")):
            self.finds("edge", path, f'#include "{target}"\n')
            self.finds("edge", path, f"  #  include <{target}>\n")
        self.finds("edge", "comm/a.cpp", '#include "world.h"\n')
        self.accepts("tools/a.cpp", '#include "comm/world.h"\n')
        self.accepts("examples/a.cpp", '#include "examples/b.h"\n#include "tools/report/html.h"\n')

    def test_base_stands_on_std_alone(self):
        for name in ("mpi.h", "Eigen/Core", "nlohmann/json.hpp", "cuda_runtime.h", "hwy/highway.h", "xxhash.h"):
            self.finds("edge", "zero/base/a.cpp", f"#include <{name}>\n")

    def test_json_stays_at_the_edge(self):
        for folder in ("zero", "zero/base", "comm", "optim", "offload"):
            self.finds("json", folder + "/a.cpp", "#include <nlohmann/json.hpp>\n")
        for folder in ("config_schemas", "zero/checkpoint/format", "tools/zero", "examples", "tests"):
            self.accepts(folder + "/a.cpp", "#include <nlohmann/json.hpp>\n")

    def test_feature_macros(self):
        for line in ("#ifdef ZERO_CUDA", "#if ZERO_HAVE_NCCL", "# ifndef OMPI_MAJOR_VERSION", "#elif defined(ZERO_MPI)",
                     "#if __has_include(<mpi.h>)", "#if __has_include(<cuda_runtime.h>)", "#ifdef __CUDACC__",
                     "#ifdef MPICH", "#if 1 && \\\n  defined(CUDA)"):
            self.finds("feature-macro", "comm/a.cpp", line + "\n")
            self.finds("feature-macro", "tests/a.cpp", line + "\n")
        self.accepts("zero/mpi.h", "#define OMPI_SKIP_MPICXX 1\n#include <mpi.h>\n")

    def test_stage_comparisons(self):
        for text in ("if (stage == 3) {}", "if (config.zero_optimization.stage >= 2) {}", "if (3 == o.stage) {}",
                     "return 2 <= stage_;", "bool x = stage() != 0;", "switch (options.stage) {}",
                     "if (int(config.stage) > 1) {}", "x = stage < 3 ? a : b;", "if (zero_stage > 1) {}",
                     "bool x = 2 < config->stage;", "if (1 < static_cast<int>(o.stage)) {}",
                     'const auto* given = find(given_, "zero_optimization.stage");'):
            for path in ("zero/engine2.cpp", "comm/a.cpp", "examples/a.cpp", "config_schemas/a.cpp"):
                self.finds("stage", path, text + "\n")
            self.accepts("zero/plan/placement_table.cpp", text + "\n")
        for text in ("// stage == 3", "/* stage\n  == 3 */ int x;", "std::optional<int> stage;", "int stage = 3;",
                     "out << options.stage << 1;", "staging == other", 'say("stage == 3");', "in >> stage;",
                     "f(static_cast<int>(stage));", "options->stage = 1;", "std::map<int, Stage> stages = {};",
                     "target = in_zero<&ZeroOptions::stage>;"):
            self.accepts("zero/a.cpp", text + "\n")

    def test_length(self):
        self.finds("length", "zero/a.cpp", "int x;\n" * 401)
        self.finds("length", "tests/a.py", "x = 1\n" * 601)
        self.accepts("zero/a.cpp", "int x;\n" * 400)
        self.accepts("tests/data/golden.json", "1\n" * 601)

    def test_marks(self):
        for mark in (MARK, "FIX" + "ME", "XX" + "X", "HA" + "CK"):
            for path in ("zero/a.cpp", "docs/b.md", "cmake/a.cmake", "tools/zero/CMakeLists.txt", "tests/run.sh"):
                self.finds("marks", path, f"# {mark}: later\n")
        self.accepts("zero/a.cpp", 'const char* t = "/tmp/a' + 6 * "X" + '";\n')

    def test_units(self):
        for text in ('"%.1f MB"', "// of 3 GB", "kB", "GB/s"):
            self.finds("units", "zero/a.cpp", text + "\n")
            self.finds("units", "docs/b.md", text + "\n")
            self.accepts("tests/a.cpp", text + "\n")
        self.accepts("docs/b.md", "3 MiB, 2.1 GiB/s, --max-shard-size 5GB\n")

    def test_openmp(self):
        for text in ("#pragma omp parallel for", "#  pragma  omp simd", '_Pragma("omp simd")', "#include <omp.h>"):
            self.finds("openmp", "optim/cpu/a.cpp", text + "\n")

    def test_names_in_a_unity_build(self):
        ordered, limits = "using Json = nlohmann::ordered_json;\n", "constexpr seconds other{3}, most{4};\n"
        for first, second in ((ordered, "using Json = nlohmann::json;\n"), (limits, "constexpr int most = 3;\n"), (limits, limits)):
            found = self.findings(files={"tools/report/a.cpp": first, "tools/report/b.cpp": second})
            self.assertTrue(found and all(one.startswith("tools/report/b.cpp:1: unity: ") for one in found), found)
            self.assertEqual(self.findings(files={"tools/a.cpp": first, "tools/report/b.cpp": second}), [])
        self.assertEqual(self.findings(files={"tools/a.cpp": ordered, "tools/b.cpp": ordered}), [])
        self.assertEqual(self.findings(files={"tools/a.cpp": ordered, "tools/b.cpp": "void f() {\n  using Json = int;\n"}), [])

    def test_public_headers(self):
        for text in ("#include <mpi.h>", "#include <nlohmann/json.hpp>", "#include <cuda_runtime.h>",
                     "void f(MPI_Comm);", "cudaStream_t stream();", "ncclComm_t c;", "nlohmann::json j;",
                     "Eigen::MatrixXf m;"):
            self.finds("public", "zero/zero.h", text + "\n")
        self.finds("public", "optim/options.h", "void f(MPI_Comm);\n")
        self.accepts("zero/cuda.h", "#include <cuda_runtime.h>\ncudaStream_t f();\n")
        self.accepts("comm/private.h", "void f(MPI_Comm);\n")

    def test_comments_begin_with_their_subject(self):
        for word in ("Of", "What", "Where", "Which", "Whose", "Whom", "By", "To"):
            self.finds_in_each("headless", {
                "zero/a.cpp": f"// {word} the two moments.\n", "comm/a.h": f"int x;  // {word} a rank\n",
                "optim/a.cu": f"/* {word} a rank */\n", "tests/a.py": f"# {word} a rank\nx = 1\n",
                "tests/b.py": f'def f():\n    """{word} a rank."""\n', "tests/c.sh": f"# {word} a rank\n",
                "tools/zero/CMakeLists.txt": f"x()  # {word} a rank\n",
                "zero/after.cpp": f"int x;  // Offset\n// {word} a rank\nint y;\n",
                "tests/after.py": f"x = 1  # Offset\n# {word} a rank\n"})
        self.accepts("zero/a.cpp", "int x;  // The offset\n        // Of a rank\n")
        self.accepts("zero/a.cpp", '// Moments.\n// Of a rank.\nauto x = "// Of a rank";  // Offset\n')
        self.accepts("tests/a.py", '"""Tests."""\nx = "# To a rank"\n')

    def test_rare_words(self):
        for word in ("where", "what"):
            text = f"// A rank stops {word} it is.\n"
            self.finds("rare-word", "comm/a.cpp", text + "int x;\n" + text + "int y;\n" + text)
            self.accepts("comm/a.cpp", text + "int x;\n" + text + f'auto y = "{word} {word} {word}";\n')
            # Long texts may have more of them; the count is of all files of a folder.
            words = "// " + "word " * 1500 + "\n"
            self.accepts("comm/a.cpp", words + "int x;\n" + 3 * text)
            found = self.findings(files={"comm/a.cpp": text, "comm/wire/b.cpp": text, "comm/c.h": text})
            self.assertTrue(any(": rare-word: " in f for f in found), found)
            self.assertEqual(self.findings(files={"comm/a.cpp": text, "optim/b.cpp": text, "offload/c.h": text}), [])

    def test_phrases(self):
        for phrase, _ in PHRASES:
            self.finds_in_each("phrase", {
                "zero/a.cpp": f"// It {phrase} memory.\n", "zero/a.h": f'auto x = "it {phrase} memory";\n',
                "tests/a.py": f"# It {phrase} memory.\n", "tests/b.py": f'"""It {phrase} memory."""\n',
                "tests/c.py": f'x = "it {phrase} memory"\n', "docs/b.md": f"It {phrase} memory.\n",
                "zero/b.cpp": "// It {}\n// memory.\n".format(phrase.replace(" ", "\n// "))})
        self.accepts("zero/a.cpp", "int beside = 1;  // the besides\n")

    def test_symbols_of_libraries(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("base dl\nplan base\ncomm $<BUILD_INTERFACE:base>\nengine plan comm\n")
            file.flush()
            linked = linked_libraries(file.name)
        self.assertEqual(linked["engine"], {"engine", "plan", "comm", "base", "dl"})
        objects = {("b.cpp", "base"): ({"b"}, set()), ("c.cpp", "comm"): ({"c"}, {"b"}),
                   ("e.cpp", "engine"): (set(), {"b", "c", "of libc"})}
        self.assertEqual(check_libraries(objects, linked), [])
        found = check_libraries({**objects, ("p.cpp", "plan"): (set(), {"c"})}, linked)
        self.assertEqual(found, ["p.cpp: plan does not link a library that defines c: comm"])

    def test_docstrings_of_the_package(self):
        path = "pytorch/python/zerocore/a.py"
        for text in ("def f():\n    pass\n", "class C:\n    pass\n",
                     'class C:\n    """C."""\n\n    def f(self):\n        pass\n',
                     'class C:\n    """C."""\n\n    @property\n    def f(self):\n        pass\n'):
            self.finds("docstring", path, text)
            self.accepts("tests/pytorch/a.py", text)
        self.accepts(path, 'def f():\n    """F."""\n\n\ndef _g():\n    pass\n\n\nclass _C:\n    def f(self):\n        pass\n')


if __name__ == "__main__":
    unittest.main()
