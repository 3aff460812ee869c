"""`python -m zerocore` prints the libraries with which this package was built and those found now, one per line;
`python -m zerocore ARGUMENTS` is the command `zero`, and `python -m zerocore plan MODEL` plans any model that transformers
has."""

import json
import os
import pathlib
import shutil
import sys

import torch
import zerocore_command

from . import __file__ as package
from . import __version__, _build, _native, planning


def main():
    """Prints the lines, plans a model, or becomes the tool, whose plan has its model in an option."""
    if zerocore_command.is_for_tool(sys.argv[1:]):
        zerocore_command.main()
    if sys.argv[1:]:
        planning.main(sys.argv[2:])
        return
    host = json.loads(_native.host_report())
    lines = {
        "zerocore": f"{__version__}, {pathlib.Path(package).parent}",
        "Python": f"{sys.version.split()[0]}, {sys.executable}",
        "torch": f"{torch.__version__}, {pathlib.Path(torch.__file__).parent}",
        "CUDA": _cuda(host),
        "NCCL": f"{_dotted(host['nccl_version'], 10000, 100)}, {host['nccl']}" if host["nccl"] else
                "not found: several ranks on GPUs need libnccl.so.2",
        **_mpi(),
        "SIMD": host["simd"],
        "shared memory": _shared_memory(host),
    }
    for topic, text in lines.items():
        print(f"{topic:<15}{text}")


def _cuda(host):
    if not _native.has_cuda:
        return "not in this build: ranks are on the CPU"
    text = f"{_build.cuda_version} in this build, {torch.version.cuda or 'none'} in torch, "
    if torch.version.cuda is None:
        return text + "which this build needs for GPUs: ranks are on the CPU"
    if host["driver_cuda"] is None:
        problem = f"no answer from driver {host['driver']}" if host["driver"] else "no driver"
        return f"{text}{problem} (libcuda.so.1): ranks are on the CPU"
    return (f"{text}{_dotted(host['driver_cuda'], 1000, 10, 1)} in the driver {host['driver']}; "
            f"GPUs: {torch.cuda.device_count()}")


def _mpi():
    """Returns a line for each MPI with which ranks under mpirun can start."""
    programs = [shutil.which(name) for name in ("mpirun", "mpiexec")]
    folders = [str(pathlib.Path(program).resolve().parents[1] / "lib") for program in programs if program]
    return {found.name: f"{' '.join(found.version.splitlines()[0].split(',')[0].split())}, {found.path}" if found.version else
            f"not found ({found.problem}): its mpirun cannot start ranks, torchrun can"
            for found in _native.find_mpi(folders)}


def _shared_memory(host):
    if not host["shared_bytes"]:
        return "no /dev/shm: data loaders with workers need it, ranks do not"
    return f"/dev/shm, {host['shared_free_bytes'] / 2**30:.1f} of {host['shared_bytes'] / 2**30:.1f} GiB free"


def _dotted(number, *units):
    """Returns the version that a library packs into one number, as "2.30.7" for 23007 and the units 10000 and 100."""
    parts = []
    for unit in (*units, 1):
        parts.append(str(number // unit))
        number %= unit
    return ".".join(parts)


if __name__ == "__main__":
    main()
