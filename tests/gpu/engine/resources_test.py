"""Compiles every kernel for every architecture, and checks the resources that ptxas reports: no more spills and local
memory than the limits below, and few enough registers for the blocks in which the kernels are launched.

  resources_test.py NVCC ROOT [--arch 80 90 100]
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# The largest number of bytes of local memory per kernel. Exact sums have limbs that one thread of a block folds; a
# decision runs on one thread; the others are registers that ptxas spills.
STACK = {"norm_kernel": 168, "measure_kernel": 328, "decide_kernel": 288, "normalize_kernel": 88, "steps_kernel": 88,
         "update_kernel": 8, "ordered_sum_kernel": 40, "sum_kernel": 40, "key_gradient_kernel": 16,
         "forward_kernel": 8, "measure_factored_kernel": 328, "moments_kernel": 96, "factor_sums_kernel": 192}
# The largest number of spilled bytes per kernel: ptxas keeps to 64 registers, or to 32, so that more blocks run at
# once, and reads the sums of outer groups of ranks, or constants of a loop, from memory. Among the updates only Adagrad
# spills, on sm_80.
SPILLED = {"update_kernel": 8, "ordered_sum_kernel": 80, "sum_kernel": 160, "key_gradient_kernel": 24,
           "forward_kernel": 16, "moments_kernel": 8}
NO_OWN_KERNELS = ("token_order.cu",)  # from CUB
# Compiled without contraction, as in the build.
ENGINE = ("-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true")
THREADS = {"classifier_kernel": 2 * 512}  # of the blocks that share a multiprocessor by design
DEFAULT_THREADS = 512
REGISTERS = 65536
FUNCTION = re.compile(r"Compiling entry function '(\S+)' for '(\S+?)'\n(.*?)(?=ptxas info\s+: Compiling|\Z)", re.S)
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
NAME = re.compile(r"\d+([a-z_]+_kernel)(?=[IE])")


def kernels_of(root):
    folders = ("optim/cuda", "comm/cuda", "comm/wire/cuda", "examples/gpt/cuda")
    return [path for folder in folders for path in sorted((root / folder).glob("*.cu"))]


def compile_for(nvcc, root, path, arch, folder):
    ours = not path.is_relative_to(root / "examples")
    command = [nvcc, "-std=c++20", "-O3", "-cubin", f"-arch=sm_{arch}", "-Xptxas", "-v", "--expt-relaxed-constexpr",
               "-I", root, *(ENGINE if ours else ()), "-o", f"{folder}/{path.stem}.{arch}", path]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def findings_of(path, arch, run):
    if run.returncode != 0:
        return [f"{path.name} for sm_{arch}: does not compile: {run.stdout[-2000:]}"], 0
    findings, count = [], 0
    for entry, _, text in FUNCTION.findall(run.stdout):
        found = NAME.search(entry)
        if not found:
            continue  # from a library
        count += 1
        name = found[1]
        stack, stores, loads = map(int, SPILLS.search(text).groups())
        registers = int(USED.search(text)[1])
        where = f"{name} ({entry}) for sm_{arch}"
        if stores > SPILLED.get(name, 0):
            findings.append(f"{where}: spills {stores} and reads back {loads} bytes, and at most {SPILLED.get(name, 0)} may be spilled")
        if stack > STACK.get(name, 0):
            findings.append(f"{where}: {stack} bytes of local memory, and at most {STACK.get(name, 0)} may be there")
        if registers * THREADS.get(name, DEFAULT_THREADS) > REGISTERS:
            findings.append(f"{where}: {registers} registers are too many for {THREADS.get(name, DEFAULT_THREADS)} threads")
    if count == 0 and path.name not in NO_OWN_KERNELS:
        findings.append(f"{path.name} for sm_{arch}: no kernels in what ptxas says")
    return findings, count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nvcc")
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--arch", nargs="+", default=["80", "90", "100"])
    args = parser.parse_args()
    cases = [(path, arch) for path in kernels_of(args.root) for arch in args.arch]
    assert len(cases) >= 10 * len(args.arch), cases
    findings, kernels = [], 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = pool.map(lambda case: compile_for(args.nvcc, args.root, *case, folder), cases)
        for (path, arch), run in zip(cases, runs):
            found, count = findings_of(path, arch, run)
            findings += found
            kernels += count
    print("\n".join(findings) if findings else f"{kernels} kernels on {len(args.arch)} architectures within their limits")
    return 1 if findings else 0


sys.exit(main())
