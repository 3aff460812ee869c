"""`python -m zerocore` prints the libraries with which this package was built and those found now, one per line."""

import ctypes
import os
import pathlib
import shutil
import sys

import torch

from . import __file__ as package
from . import __version__, _build, _native


def main():
    """Prints the lines."""
    lines = {
        "zerocore": f"{__version__}, {pathlib.Path(package).parent}",
        "Python": f"{sys.version.split()[0]}, {sys.executable}",
        "torch": f"{torch.__version__}, {pathlib.Path(torch.__file__).parent}",
        "CUDA": _cuda(),
        "NCCL": _nccl(),
        "MPI": _mpi(),
        "SIMD": _native.simd(),
        "shared memory": _shared_memory(),
    }
    for topic, text in lines.items():
        print(f"{topic:<15}{text}")


def _cuda():
    if not _native.has_cuda:
        return "not in this build: ranks are on the CPU"
    text = f"{_build.cuda_version} in this build, {torch.version.cuda or 'none'} in torch, "
    if torch.version.cuda is None:
        return text + "which this build needs for GPUs: ranks are on the CPU"
    driver, problem = _loaded("libcuda.so.1")
    if driver is None:
        return text + f"no driver ({problem}): ranks are on the CPU"
    version = ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return text + f"no answer from the driver, {_path_of('libcuda.so')}: ranks are on the CPU"
    return (text + f"{version.value // 1000}.{version.value % 1000 // 10} in the driver, {_path_of('libcuda.so')}; "
            f"GPUs: {torch.cuda.device_count()}")


def _nccl():
    nccl, problem = _loaded("libnccl.so.2")
    if nccl is None:
        return f"not found ({problem}): several ranks on GPUs need it"
    version = ctypes.c_int()
    nccl.ncclGetVersion(ctypes.byref(version))
    return f"{version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}, {_path_of('libnccl.so')}"


def _mpi():
    """Describes the MPI that ranks under mpirun would use."""
    plugin, problem = _loaded(pathlib.Path(package).parent / "libzerocore_mpi.so")
    if plugin is None:
        return f"not found ({problem}): mpirun cannot start ranks, torchrun can"
    text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
    plugin.MPI_Get_library_version(text, ctypes.byref(length))
    return f"{text.value.decode().splitlines()[0].split(',')[0]}, {_path_of('libmpi.so')}"


def _shared_memory():
    if not os.path.isdir("/dev/shm"):
        return "no /dev/shm: data loaders with workers need it, ranks do not"
    space = shutil.disk_usage("/dev/shm")
    return f"/dev/shm, {space.free / 2**30:.1f} of {space.total / 2**30:.1f} GiB free"


def _loaded(name):
    """Returns (library, None), or (None, the reason)."""
    try:
        return ctypes.CDLL(str(name)), None
    except OSError as error:
        return None, str(error)


def _path_of(start):
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if path.rpartition("/")[2].startswith(start):
                return "/" + path
    return start


if __name__ == "__main__":
    main()
