"""Checks for a GPU, its libraries and the programs: opens each library as the programs do, and prints its version.

  probe.py BIN       checks all; exit code 11 if one is missing, with the folders that were searched
  probe.py --path    prints folders for LD_LIBRARY_PATH, so that the programs find NCCL, cuBLASLt, cuDNN and nvrtc

The libraries that pip has installed for python3's PyTorch come first, so that both programs of a comparison use the same.
ZERO_CUDA_MAJOR names the major version of the CUDA that the programs were built with, if not 13.
"""

import ctypes
import glob
import importlib.metadata
import os
import shutil
import site
import subprocess
import sys
import sysconfig

CUDA = os.environ.get("ZERO_CUDA_MAJOR", "13")


def version_of_int(library, function, kind=ctypes.c_int):
    value = kind()
    getattr(library, function)(ctypes.byref(value))
    return value.value


def version_of_result(library, function):
    get = getattr(library, function)
    get.restype = ctypes.c_size_t
    return get()


def nvrtc_version(library):
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


# Name, file, version, and files that must be in the same folder because the library opens them later.
LIBRARIES = (
    ("nccl", "libnccl.so.2", lambda lib: version_of_int(lib, "ncclGetVersion"), ()),
    ("cublasLt", f"libcublasLt.so.{CUDA}", lambda lib: version_of_result(lib, "cublasLtGetVersion"), ()),
    ("cudnn", "libcudnn.so.9", lambda lib: version_of_result(lib, "cudnnGetVersion"),
     ("libcudnn_graph.so.9", "libcudnn_heuristic.so.9", "libcudnn_engines_precompiled.so.9",
      "libcudnn_engines_runtime_compiled.so.9")),
    ("nvrtc", f"libnvrtc.so.{CUDA}", nvrtc_version, (f"libnvrtc-builtins.so.{CUDA}*",)),
)


def folders():
    """Returns folders with CUDA libraries, in order of preference."""
    packages = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages(),
                              site.getusersitepackages(), *sys.path])
    found = [lib for folder in packages if folder for lib in sorted(glob.glob(f"{folder}/nvidia/*/lib"))]
    found += os.environ.get("LD_LIBRARY_PATH", "").split(":")
    for root in dict.fromkeys([os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-*"))]):
        found += [f"{root}/lib64", f"{root}/lib", f"{root}/targets/x86_64-linux/lib"] if root else []
    return [folder for folder in dict.fromkeys(found) if os.path.isdir(folder)]


def search_path():
    chosen = []
    for _, file, _, _ in LIBRARIES:
        chosen += [folder for folder in folders() if os.path.exists(f"{folder}/{file}")][:1]
    return ":".join(dict.fromkeys([*chosen, *filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))]))


def absent_libraries():
    """Returns the libraries that exist in no folder. This takes no time, while opening all may take a minute on a
    fresh machine."""
    ldconfig = shutil.which("ldconfig") or shutil.which("/sbin/ldconfig")
    known = subprocess.run([ldconfig, "-p"], capture_output=True, text=True).stdout if ldconfig else ""
    return [f"{file} is in none of them" for _, file, _, _ in LIBRARIES
            if f"\t{file} " not in known and not any(os.path.exists(f"{folder}/{file}") for folder in folders())]


def probe_libraries():
    """Returns the problems. Each library is opened by its bare name, as the programs do."""
    problems = []
    for name, file, version, beside in LIBRARIES:
        try:
            library = ctypes.CDLL(file)
            print(f"figure {name} {version(library)}", flush=True)
        except (OSError, AttributeError) as error:
            problems.append(f"{file}: {error}")
            continue
        path = next((line.split()[-1] for line in open("/proc/self/maps") if line.rstrip().endswith(f"/{file}")
                     or f"/{file}." in line), "")
        print(f"{file}: {path}")
        problems += [f"{other} is not next to {path}" for other in beside
                     if not glob.glob(f"{os.path.dirname(os.path.realpath(path))}/{other}")]
    return problems


def probe_driver():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return [f"the driver: {error}"]
    code = driver.cuInit(0)
    if code != 0:
        return [f"cuInit fails with {code}"]
    count, name, device, memory = ctypes.c_int(), ctypes.create_string_buffer(128), ctypes.c_int(), ctypes.c_size_t()
    driver.cuDeviceGetCount(ctypes.byref(count))
    if count.value == 0:
        return ["the driver sees no GPU"]
    driver.cuDeviceGet(ctypes.byref(device), 0)
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    print(f"figure gpu {name.value.decode().replace(' ', '_')}")
    print(f"figure gpu_gib {memory.value / 2**30:.1f}")
    print(f"figure driver_cuda {version_of_int(driver, 'cuDriverGetVersion')}", flush=True)
    return []


def probe_programs(folder):
    problems = []
    for program, argument in (("gpu_test", "--count"), ("gpt_gpu_test", "--count"), ("train_gpt", "--help")):
        try:
            run = subprocess.run([f"{folder}/{program}", argument], capture_output=True, text=True)
        except OSError as error:
            problems.append(f"{program}: {error}")
            continue
        if run.returncode != 0:
            problems.append(f"{program} {argument}: code {run.returncode}: {(run.stderr or run.stdout).strip()[:300]}")
    if shutil.which("mpirun") is None:
        problems.append("mpirun is not on the PATH")
    return problems


def tell_machine():
    for package in ("torch", "triton"):
        try:
            print(f"figure {package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            print(f"python3 has no {package}")
    for tool in ("nvcc", "compute-sanitizer", "ncu", "nsys"):
        print(f"{tool}: {shutil.which(tool) or 'not on the PATH'}")
    memory = {line.split(":")[0]: int(line.split()[1]) / 2**20 for line in open("/proc/meminfo") if "kB" in line}
    print(f"figure cores {os.cpu_count()}")
    print(f"figure memory_gib {memory['MemTotal']:.1f}")
    print(f"figure available_gib {memory['MemAvailable']:.1f}", flush=True)


def main():
    if sys.argv[1:] == ["--path"]:
        print(search_path())
        return 0
    tell_machine()
    problems = absent_libraries() or probe_libraries() + probe_driver() + probe_programs(sys.argv[1])
    if not problems:
        return 0
    print("searched: " + " ".join(folders()))
    print("missing: " + "; ".join(problems))
    return 11


if __name__ == "__main__":
    sys.exit(main())
