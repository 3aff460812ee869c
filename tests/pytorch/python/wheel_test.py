"""Tests what pip installs: `wheel_test.py MPIEXEC PYTHON PACKAGE CASE`, where PACKAGE is the folder of the built package. No
wheel is compiled: the files of the build are packed, with the metadata of the real one."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PYTHON, PACKAGE = sys.argv[2:4]
ROOT = pathlib.Path(__file__).resolve().parents[3]
VERSION = re.search(r"project\(ZeroCore VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def run(*command, parts=(), ok=True, **options):
    """Runs a command, and returns its output, which must have the parts."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **options)
    text = done.stdout + done.stderr
    missing = [part for part in parts if part not in text]
    if (done.returncode == 0) != ok or missing:
        raise SystemExit(f"{command} ended with {done.returncode}, lacks {missing}:\n{text[-4000:]}")
    return done.stdout


def install_files(folder):
    run("cmake", "--install", pathlib.Path(PACKAGE).parent, "--component", "python", "--prefix", folder)


def pack(folder):
    """Returns a wheel of the build's files."""
    tree = folder / "tree"
    install_files(tree)
    name = run(PYTHON, "-c", "import sys, scikit_build_core.build as b; print(b.prepare_metadata_for_build_wheel(sys.argv[1]))", tree,
               cwd=ROOT).split()[-1]
    (tree / name / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: py3-none-any\n")
    run(PYTHON, ROOT / "scripts/wheel_metadata.py", tree, "--url", "https://example.com/zerocore")
    run(PYTHON, "-m", "wheel", "pack", "--dest-dir", folder, tree)
    (wheel,) = folder.glob("*.whl")
    return wheel


def by_pip():
    """A wheel in a plain environment: its metadata, and the command `zero` with torch and without."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        wheel = pack(folder)
        run(PYTHON, "-m", "twine", "check", "--strict", wheel, parts=("PASSED",))
        metadata = run(PYTHON, "-m", "zipfile", "-e", wheel, folder / "read") or next(
            (folder / "read").glob("*.dist-info/METADATA")).read_text()
        for part in (f"Version: {VERSION}\n", "License-Expression: Apache-2.0\n", "Author: The ZeroCore authors\n", "Project-URL: ",
                     "Classifier: ", "](https://example.com/zerocore/blob/main/docs/"):
            if part not in metadata:
                raise SystemExit(f"the metadata lack {part}:\n{metadata[:3000]}")
        if re.search(r"\]\((?!https?:)[^)\s]+\)", metadata):
            raise SystemExit("the description has relative links")
        run(PYTHON, "-m", "venv", "--without-pip", folder / "venv")
        python, zero = folder / "venv/bin/python", folder / "venv/bin/zero"
        plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        run(PYTHON, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet", wheel)
        for command in (["--version"], ["plan", "--model", "gpt2", "--ranks", "2"], ["config", "explain", "gradient_clipping"], ["doctor"]):
            run(zero, *command, env=plain, cwd=folder)
            run(python, "-m", "zerocore", *command, env=plain, cwd=folder)
        run(python, "-c", "import zerocore", ok=False, env=plain, cwd=folder,
            parts=(f"there is no torch in this environment: this zerocore {VERSION} is built for torch 2.",))
        for words in ([], ["plan", "model"]):  # these need torch
            done = subprocess.run([python, "-m", "zerocore", *words], capture_output=True, text=True, timeout=300, env=plain, cwd=folder)
            if done.returncode != 1 or not re.fullmatch("zerocore: there is no torch in this environment: .*\n", done.stdout + done.stderr):
                raise SystemExit(f"python -m zerocore {words} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        torch = run(PYTHON, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip()
        run(python, "-m", "zerocore", "--version", parts=(f"zero {VERSION}",), cwd=folder, env={**plain, "PYTHONPATH": torch})
        run(zero, "doctor", "-n", "2", parts=("2 ranks",), cwd=folder, env={**plain, "PYTHONPATH": torch})


def builds():
    """A build that cannot succeed says why in its first line."""
    with tempfile.TemporaryDirectory() as folder:
        run("bash", ROOT / "scripts/make_wheel.sh", "--python", "no-such-python", folder, ok=False,
            parts=("make_wheel.sh: there is no Python named no-such-python: give --python\n",))
        for script, argument, answer in (("scripts/make_wheel.sh", "--pythn", "unknown option --pythn\n"),
                                         ("scripts/make_wheel.sh", "--torch", "--torch needs a value\n"),
                                         ("scripts/install_dependencies.sh", "--torhc", "unknown argument --torhc\n"),
                                         ("examples/quickstart.sh", "--ranks", "unexpected argument --ranks; variables change the run"),
                                         ("tests/run.sh", "--fast", "unknown argument --fast\n")):
            run("bash", ROOT / script, argument, ok=False, parts=(f"{pathlib.Path(script).name}: {answer}",))
        run(PYTHON, "-B", "-c", "import sys; sys.path.insert(0, 'packaging'); sys.modules['torch'] = None; import zerocore_build as b\n"
            "b.get_requires_for_build_wheel({})", ok=False, cwd=ROOT, parts=("zerocore: there is no torch to build against.",))


def installed():
    """The package has as_deepspeed's folder, and an extension for each torch, of which it takes the right one."""
    with tempfile.TemporaryDirectory() as folder:
        install_files(folder)

        def python(code, *parts, ok=True):
            run(PYTHON, "-W", "ignore", "-c", code, parts=parts, ok=ok, cwd=folder, env={**os.environ, "PYTHONPATH": folder})

        (extension,) = pathlib.Path(folder, "zerocore/binaries").glob("torch*.so")
        shutil.copy(extension, extension.with_name(re.sub(r"torch[\d.]+\d", "torch2.3", extension.name)))  # not taken
        python("import zerocore, zerocore.as_deepspeed as a; print(zerocore.__file__, zerocore._native.__file__)\n"
               "a.install(); import deepspeed, importlib.metadata as m; print(m.version('deepspeed'))\n"
               "from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus\n"
               "print(zerocore.__version__)", f"{folder}/zerocore/__init__.py {extension}", "0.19.8", VERSION)
        python("import sys, types; sys.modules['torch'] = types.ModuleType('torch'); sys.modules['torch'].__version__ = '2.99.1+cpu'\n"
               "import zerocore", f"ImportError: this is torch 2.99.1+cpu: this zerocore {VERSION} is built for torch 2.3, ",
               "pip install 'torch==", ok=False)


if __name__ == "__main__":
    globals()[sys.argv[4]]()
