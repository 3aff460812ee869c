"""Every call of NCCL returns an error, or does not return: the ranks end in time with the call's name, or continue if
the call is not needed. Usage: nccl_faults_test.py PROGRAM FOLDER, with the replacement libnccl.so.2 in the folder.
"""

import concurrent.futures
import os
import subprocess
import sys
import tempfile

LIMIT_S = 40
STALLED = 18
# Memory that is not registered is copied; a communicator that is not destroyed is left to the end of the process.
NOT_NEEDED = {"ncclCommRegister", "ncclCommDeregister", "ncclCommDestroy"}
# A guard queries NCCL's error and reports its text.
NAMES = {"ncclCommGetAsyncError": "last words"}
SYSTEM_ERROR = 2


def run(*arguments, **environment):
    process = subprocess.run([sys.argv[1], *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S,
                             env={**os.environ, "LD_LIBRARY_PATH": sys.argv[2], **environment})
    return process.returncode, process.stdout


def problem(case):
    call, first, outcome = case
    try:
        code, output = run(ZERO_NCCL_FAULT=f"{call} {first} {outcome}")
    except subprocess.TimeoutExpired:
        return f"{case}: hangs for {LIMIT_S} s"
    if outcome == "never":
        # Reported by the guard or by the device's watch, whichever is first.
        good = code == STALLED and (f"CUDA has not come back from {call}" in output or "waited 400 ms" in output or "0.4 s" in output)
    elif code == 0:
        good = call in NOT_NEEDED and output.endswith("done\n")
    else:
        good = code > 0 and NAMES.get(call, call) in output
    return "" if good else f"{case}: ended with {code}: {output!r}"


def main():
    with tempfile.NamedTemporaryFile() as file:
        code, output = run(ZERO_NCCL_COUNTS=file.name)
        assert code == 0 and output == "done\n", (code, output)
        calls = {name: int(count) for name, count in (line.split() for line in open(file.name, encoding="utf-8"))}
    assert len(calls) >= 18, calls
    cases = [(call, first, outcome) for call, count in calls.items() for outcome in (SYSTEM_ERROR, "never")
             for first in sorted({1, (count + 1) // 2})]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        findings = [found for found in pool.map(problem, cases) if found]
    code, output = run("busy")
    if code != STALLED or "on the GPU for all_gather" not in output:
        findings.append(f"a device that ends nothing: ended with {code}: {output!r}")
    code, output = run("shared")
    if code != 0:
        findings.append(f"an environment that comes too late is not noticed: ended with {code}: {output!r}")
    print("\n".join(findings) if findings else f"{len(cases)} faults of {len(calls)} calls")
    return 1 if findings else 0


sys.exit(main())
