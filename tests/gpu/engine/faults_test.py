"""Every call of CUDA that an engine makes returns an error, once and from then on, or does not return: the program ends
in time with the call's name, or continues if it does not need the call. Usage: faults_test.py PROGRAM

Each case is a separate process, like after a fault of a device.
"""

import concurrent.futures
import re
import subprocess
import sys

LIMIT_S = 30
STALLED = 18  # the exit code of zero::StalledError
INVALID_VALUE, LAUNCH_FAILURE = 1, 719
FOR_EVER = 1 << 30
# Cleaning up continues after a failed call; a version is only for messages; if CUDA refuses to register memory, CUDA
# allocates it instead.
NOT_NEEDED = {"cudaFree", "cudaFreeHost", "cudaHostUnregister", "cudaEventDestroy", "cudaStreamDestroy",
              "cudaDriverGetVersion", "cudaRuntimeGetVersion", "cudaHostRegister"}
# A failed wait at the engine's end, when all results exist, only ends the waiting. A count of devices is repeated if it
# fails once.
NOT_NEEDED_AT_LAST = {"cudaEventQuery", "cudaEventRecord"}
NOT_NEEDED_ONCE = {"cudaGetDeviceCount"}
# Nothing has a time limit before there is a device: if a driver hangs in its own start, the program hangs. Before there
# is an engine, whose limit this program makes short, the limit is 600 s.
BEFORE_A_DEVICE = {"cudaDriverGetVersion", "cudaRuntimeGetVersion", "cudaGetDeviceCount"}
FIRST_BEFORE_AN_ENGINE = {"cudaSetDevice", "cudaGetDeviceProperties", "cudaDeviceGetPCIBusId", "cudaDeviceGetStreamPriorityRange",
                          "cudaStreamCreateWithPriority", "cudaEventCreateWithFlags"}
# Messages name the kernel; if a driver lacks a function, they name the function.
NAMES = {"cudaLaunchKernelExC": ("_kernel",), "cudaGetDeviceCount": ("sees no GPU",),
         "cudaGetDriverEntryPointByVersion": ("cuStreamWaitValue32", "cuStreamWriteValue32")}


def calls_in(output):
    return {name: int(count) for name, count in re.findall(r"^(cu\w+) (\d+)$", output, re.MULTILINE)}


def run(*arguments):
    process = subprocess.run([sys.argv[1], *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, timeout=LIMIT_S)
    return process.returncode, process.stdout


def problem_of_error(call, first, last, error, count):
    code, output = run(call, first, last, error)
    if code == 0 and output.endswith("done\n"):
        if calls_in(output).get(call, 0) < first:
            return ""  # how often threads wait depends on their speed, and this time it did not come to it
        needed = call not in NOT_NEEDED
        needed &= not (call in NOT_NEEDED_AT_LAST and first > count - 3) and not (call in NOT_NEEDED_ONCE and first == last)
        return "the program goes on as if nothing had happened" if needed else ""
    if code < 0 or "error: " not in output:
        return f"ended with {code}: {output!r}"
    if not any(name in output for name in NAMES.get(call, (call,))):
        return f"does not name the call: {output!r}"
    return ""


def problem_of_hang(call, first):
    code, output = run(call, first, "never")
    if code == 0 and calls_in(output).get(call, 0) < first:
        return ""
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
    calls = calls_in(output)
    assert len(calls) >= 25 and all(needed in calls for needed in NAMES), calls
    cases = []
    for call, count in calls.items():
        for number in sorted({1, (count + 1) // 2, count}):
            cases += [(problem_of_error, call, number, number, INVALID_VALUE, count),
                      (problem_of_error, call, number, FOR_EVER, LAUNCH_FAILURE, count)]
        if call not in BEFORE_A_DEVICE:
            cases += [(problem_of_hang, call, number) for number in sorted({1, count - count // 8})
                      if number > 1 or call not in FIRST_BEFORE_AN_ENGINE]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        findings = [found for found in pool.map(problem, cases) if found]
    print("\n".join(findings) if findings else f"{len(cases)} faults of {len(calls)} calls")
    return 1 if findings else 0


sys.exit(main())
