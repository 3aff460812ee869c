"""Compares gpu_ranks on ranks that share the GPU with the same number of CPU ranks: digests and bytes sent must be
equal.

    compare_ranks.py GPU_RANKS RANKS [plain]   plain: NCCL's own sums, run to run, without CPU ranks"""

import re
import subprocess
import sys

RESULT = re.compile(r"digest .*|stage .*: sent .*")


def results(program, ranks, *arguments):
    launcher = [] if ranks == 1 else ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none"]
    run = subprocess.run([*launcher, program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(run.stdout, flush=True)
    if run.returncode != 0:
        # mpirun prints its own lines at the end.
        said = [line for line in run.stdout.splitlines() if line.startswith("zero")] or run.stdout.splitlines() or [""]
        sys.exit(f"code {run.returncode} of {ranks} ranks {' '.join(arguments)}: {said[0]}")
    found = sorted(RESULT.findall(run.stdout))
    if not found:
        sys.exit("no digests in the output")
    return found


program, ranks = sys.argv[1], int(sys.argv[2])
if sys.argv[3:] == ["plain"]:
    results(program, ranks, "plain")
elif results(program, ranks) != results(program, ranks, "cpu"):
    sys.exit("the CPU ranks have other digests or have sent other bytes")
print("equal")
