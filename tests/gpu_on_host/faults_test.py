"""Every call of CUDA that an engine makes returns an error, once and from then on, or does not come back: the program
ends in time with the call's name, or goes on where the call is not needed. Usage: faults_test.py PROGRAM

Each case is a process of its own, as after a fault of a device.
"""

import concurrent.futures
import subprocess
import sys

LIMIT_S = 30
STALLED = 18  # the exit code of zero::StalledError
INVALID_VALUE, LAUNCH_FAILURE = 1, 719
FOR_EVER = 1 << 30
# Cleaning up goes on behind a call that fails; a version is only for messages; memory that CUDA refuses to register is
# allocated by it instead.
NOT_NEEDED = {"cudaFree", "cudaFreeHost", "cudaHostUnregister", "cudaEventDestroy", "cudaStreamDestroy",
              "cudaDriverGetVersion", "cudaRuntimeGetVersion", "cudaHostRegister"}
# Before a device is there, nothing has a time limit: a driver that hangs in its own start hangs the program.
BEFORE_A_DEVICE = {"cudaDriverGetVersion", "cudaRuntimeGetVersion", "cudaGetDeviceCount"}
# Messages name the kernel; a driver that lacks a function is told by the function's name.
NAMES = {"cudaLaunchKernelExC": ("_kernel",), "cudaGetDeviceCount": ("sees no GPU",),
         "cudaGetDriverEntryPointByVersion": ("cuStreamWaitValue32", "cuStreamWriteValue32")}
ERRORS = {2, 11, 15, 18}


def run(*arguments):
    process = subprocess.run([sys.argv[1], *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, timeout=LIMIT_S)
    return process.returncode, process.stdout


def problem_of_error(call, first, last, error):
    code, output = run(call, first, last, error)
    if code == 0 and output.endswith("done\n"):
        return "" if call in NOT_NEEDED else "the program goes on as if nothing had happened"
    if code < 0 or "error: " not in output:
        return f"ended with {code}: {output!r}"
    if not any(name in output for name in NAMES.get(call, (call,))):
        return f"does not name the call: {output!r}"
    return ""


def problem_of_hang(call, first):
    code, output = run(call, first, "never")
    if code != STALLED or f"CUDA has not come back from {call}" not in output and "_kernel" not in output:
        return f"ended with {code}: {output!r}"
    return ""


def problem(case):
    check, *arguments = case
    try:
        found = check(*arguments)
    except subprocess.TimeoutExpired:
        found = f"hangs for {LIMIT_S} s"
    return f"{check.__name__}{tuple(arguments)}: {found}" if found else ""


def main():
    code, output = run()
    assert code == 0, output
    calls = {name: int(count) for name, count in (line.split() for line in output.splitlines()[:-1])}
    assert len(calls) >= 25 and all(needed in calls for needed in NAMES), calls
    cases = []
    for call, count in calls.items():
        for number in sorted({1, (count + 1) // 2, count}):
            cases += [(problem_of_error, call, number, number, INVALID_VALUE),
                      (problem_of_error, call, number, FOR_EVER, LAUNCH_FAILURE)]
        if call not in BEFORE_A_DEVICE:
            cases += [(problem_of_hang, call, number) for number in {1, count}]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        findings = [found for found in pool.map(problem, cases) if found]
    print("\n".join(findings) if findings else f"{len(cases)} faults of {len(calls)} calls")
    return 1 if findings else 0


sys.exit(main())
