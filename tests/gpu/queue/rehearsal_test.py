"""Tests tests/gpu.sh without a GPU, with stand-ins: programs on a CUDA that runs on the host, libraries that only return a
version, and a failure in each place. PyTorch modules train on the CPU, if this Python has the torch of BIN/../python.

  rehearsal_test.py BIN              prepares a folder from a build's bin/, and tries it; needs cc
  rehearsal_test.py --prepare BIN DIR, then --try DIR on a machine without compilers; DIR may be an unpacked bundle
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAMS = {"gpu_test": "gpu_on_host_test", "gpt_gpu_test": "gpt_on_host_test", "gpu_bench": "gpu_bench_on_host",
            "gpu_ranks": "gpu_ranks_on_host", "train_gpt": "train_gpt_on_host"}
DRIVER = """#include <string.h>
int cuInit(unsigned f) { return 0; }
int cuDeviceGetCount(int* n) { return *n = 1, 0; }
int cuDeviceGet(int* d, int n) { return *d = n, 0; }
int cuDeviceGetName(char* s, int n, int d) { return strcpy(s, "stand-in"), 0; }
int cuDeviceTotalMem_v2(unsigned long* n, int d) { return *n = 1ul << 34, 0; }
int cuDriverGetVersion(int* v) { return *v = 13000, 0; }
"""
# Folders under nvidia/, as pip names them. No machine has a CUDA 99.
LIBRARIES = {
    "nccl/lib/libnccl.so.2": "int ncclGetVersion(int* v) { return *v = 23001, 0; }",
    "cu13/lib/libcublasLt.so.99": "unsigned long cublasLtGetVersion(void) { return 130100; }",
    "cu13/lib/libnvrtc.so.99": "int nvrtcVersion(int* a, int* b) { return *a = 13, *b = 0; }",
    "cu13/lib/libnvrtc-builtins.so.99.0": "int stand_in;",
    "cudnn/lib/libcudnn.so.9": "unsigned long cudnnGetVersion(void) { return 92500; }",
    **{f"cudnn/lib/libcudnn_{part}.so.9": "int stand_in;"
       for part in ("graph", "heuristic", "engines_precompiled", "engines_runtime_compiled")},
}
# Stand-in for a profiler: runs the program and invents measurements.
NCU = """#!/bin/bash
while [[ $1 == --* ]]; do
  case $1 in --csv) shift ;; --log-file) log=$2; shift 2 ;; *) shift 2 ;; esac
done
"$@" || exit
{
  echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
  for ((i = 0; i < 9; ++i)); do
    name=kernel_$((i % 3)) && ((i % 3 == 2)) && name="zero::optim::decide_kernel(int)"
    for metric in gpu__time_duration.sum,ns dram__bytes_read.sum,byte dram__bytes_write.sum,byte; do
      echo "\\"$i\\",\\"$name\\",\\"${metric%,*}\\",\\"${metric#*,}\\",\\"1000\\""
    done
  done
} >"$log"
"""
SANITIZER = """#!/bin/bash
while [[ $1 == --* ]]; do shift 2; done
exec "$@"
"""


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def programs_of(folder):
    return folder / ("bin" if (folder / "bin").exists() else "build/bin")


def prepare(programs, folder):
    programs_of(folder).mkdir(parents=True, exist_ok=True)
    for name, source in PROGRAMS.items():
        shutil.copy(pathlib.Path(programs) / source, programs_of(folder) / name)
    for part in ("tests/gpu/queue", "tests/gpu/modules", "tests/bench"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("*.cpp", "__pycache__"), dirs_exist_ok=True)
    package = pathlib.Path(programs).resolve().parent / "python"
    loads = subprocess.run([sys.executable, "-c", "import zerocore"], env={**os.environ, "PYTHONPATH": str(package)})
    if loads.returncode == 0:
        (programs_of(folder).parent / "python").symlink_to(package)
    shutil.copy(ROOT / "tests/gpu.sh", folder / "tests/")
    for path, text in {**{f"site/nvidia/{path}": text for path, text in LIBRARIES.items()}, "driver/libcuda.so.1": DRIVER}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", folder / path], input=text.encode(), check=True)
    write_program(folder / "tools/ncu", NCU)
    write_program(folder / "tools/compute-sanitizer", SANITIZER)


class Rehearsal:
    def __init__(self, folder):
        self.folder = folder
        self.results = folder / "gpu-results/results.jsonl"

    def call(self, *arguments):
        """Returns the exit code, the outcomes written by this call per entry, and its seconds."""
        before = len(self.results.read_text().splitlines()) if self.results.exists() else 0
        environment = {**os.environ, "ZERO_CUDA_MAJOR": "99", "PYTHONPATH": str(self.folder / "site"), "LD_LIBRARY_PATH": str(self.folder / "driver"),
                       "PATH": f"{self.folder}/tools:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
        start = time.monotonic()
        run = subprocess.run([self.folder / "tests/gpu.sh", "--build", "build", "all", "--tiny", *arguments],
                             env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(f"-- {' '.join(arguments)}: code {run.returncode}\n{run.stdout}", flush=True)
        lines = self.results.read_text().splitlines() if self.results.exists() else []
        records = [json.loads(line) for line in lines[before:]]
        return run.returncode, {record["name"]: record for record in records}, time.monotonic() - start

    def outcomes(self, *arguments):
        return {name: record["outcome"] for name, record in self.call(*arguments)[1].items()}


def missing_library(rehearsal):
    for path in ("cu13/lib/libcublasLt.so.99", "cu13/lib/libnvrtc-builtins.so.99.0"):
        library = rehearsal.folder / "site/nvidia" / path
        away = library.rename(library.with_name(f"away.{library.name}"))
        code, records, seconds = rehearsal.call()
        away.rename(library)
        (record,) = records.values()
        assert code == 1 and seconds < 10 and library.name.split(".so")[0] in record["why"], (code, seconds, record)


def failures(rehearsal):
    """One program hangs, one crashes for a model, PyTorch may be missing: the other entries have results."""
    programs = programs_of(rehearsal.folder)
    for name, script in (("gpu_bench", "[[ $1 == --copies || $1 == --wire ]] || sleep 600"),
                         ("train_gpt", '[[ $(<"${4%/*}/config.json") == *\'"vocab_size": 251\'* ]] && kill -SEGV $$')):
        (programs / name).rename(programs / f"{name}.good")
        write_program(programs / name, f'#!/bin/bash\n{script}\nexec -a "$0" "$0.good" "$@"\n')
    _, records, _ = rehearsal.call()
    found = {name: record["outcome"] for name, record in records.items()}
    for name in ("gpu_bench", "train_gpt"):
        (programs / f"{name}.good").replace(programs / name)
    assert found["optimizer step, norm and copies against the device copy"] == "hung", found
    assert found["GPT-2 124M, vocabulary 251"] == "failed", found
    assert found["GPT-2 124M, vocabulary 256"] == found["Llama 1.2B"] == "passed", found
    assert found["kernels of a step of GPT-2 124M"] == found["memcheck, kernels of gpt_gpu_test"] == "passed", found
    for who, figures in (("host", {"optimizer_to_host_of_raw", "parameters_to_device_of_raw", "parameters_exposed_ms"}),
                         ("GPU", {"device_step_to_host_of_raw", "device_step_exposed_ms", "both_step_exposed_ms"})):
        offload = records[f"GPT-2 124M with state in host memory, stepped by the {who}"]["figures"]
        assert figures <= set(offload), offload
    modules = {outcome for name, outcome in found.items() if "modules" in name or "transformers" in name}
    assert modules == {"passed" if (programs.parent / "python").exists() else "skipped"}, found
    wire = records["wire formats against the device copy"]["figures"]
    assert {"int8_encode_measured_of_copy", "int4_sum_of_copy"} <= set(wire), wire
    return found


def second_call(rehearsal, found):
    """With --again, only entries that have not passed run again."""
    again = [word for name, outcome in found.items() if outcome in ("failed", "hung") for word in ("--again", name)]
    # Several ranks need the real NCCL.
    ranks = {name for name in found if "2 ranks" in name or "4 ranks" in name}
    code, records, _ = rehearsal.call(*again)
    outcomes = {name: record["outcome"] for name, record in records.items()}
    assert "GPT-2 124M, vocabulary 256" not in outcomes and outcomes["GPT-2 124M, vocabulary 251"] == "passed", outcomes
    wrong = {name: outcome for name, outcome in outcomes.items() if outcome not in ("passed", "skipped") and name not in ranks}
    assert code == 1 and not wrong, (code, wrong)
    assert records["optimizer step, norm and copies against the device copy"]["figures"]["copy_gb_s"] > 0, records


def short_of_time(rehearsal):
    rehearsal.results.unlink()
    first = rehearsal.outcomes("--seconds", "16")
    assert set(first.values()) >= {"passed", "no time"}, first
    second = rehearsal.outcomes("--seconds", "20")
    done = {name for name, outcome in first.items() if outcome in ("passed", "failed")}
    assert done - set(second) == done - {"libraries, driver and programs"}, (first, second)


def try_all(folder):
    rehearsal = Rehearsal(folder)
    missing_library(rehearsal)
    second_call(rehearsal, failures(rehearsal))
    short_of_time(rehearsal)
    print("rehearsed")


def main():
    if sys.argv[1] == "--prepare":
        return prepare(sys.argv[2], pathlib.Path(sys.argv[3]))
    if sys.argv[1] == "--try":
        return try_all(pathlib.Path(sys.argv[2]))
    with tempfile.TemporaryDirectory() as name:
        prepare(sys.argv[1], pathlib.Path(name))
        try_all(pathlib.Path(name))


if __name__ == "__main__":
    main()
