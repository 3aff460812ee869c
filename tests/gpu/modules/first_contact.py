"""First contact of PyTorch modules with a device: about 50 small trainings by the Python package, each in a process of its
own, next to a plain loop of torch on the same device.

    first_contact.py [--device cuda|cpu] [--jobs N] [--seconds N] [--json FILE] [CASE...]     CASE may be a pattern
    first_contact.py --list

A case passes if its losses are those of the plain loop (within 1e-4 in fp32, 3e-2 in 16 bits) and if its digest of weights
and states is that of all cases of its group, which are those of one training at different stages, for instance. Each result
is a line at once, "figure NAME ok" or "figure NAME failed", and with --json a line of JSON too. Cases in FILE that have
passed do not run again. Exit code: 1 if one has failed.

Processes are forked from one that has imported torch and the package, since importing takes longer than most cases, unless
that has initialized CUDA's driver, which no child can use then.
"""

import argparse
import contextlib
import ctypes
import fnmatch
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # is_available() then leaves the driver alone

import torch
from contact_cases import CASES, train, train_plain

sys.path.append(str(pathlib.Path(__file__).parents[1] / "queue"))
from run_queue import kill_session

TOLERANCE = {"fp32": 1e-4, "bf16": 3e-2, "fp16": 3e-2}
CASE_LIMIT_S = 120


def run_rank(case, device, file):
    """One rank: writes its result for the parent, {"error": text} if it fails. Rank 0 runs the plain loop too."""
    rank = os.environ.get("RANK", "0")
    try:
        result = train(case, device)
        if rank == "0":
            result["plain"] = train_plain(case, device)
    except BaseException:
        result = {"error": traceback.format_exc()}
    pathlib.Path(f"{file}.{rank}").write_text(json.dumps(result))
    return "error" in result


def driver_is_initialized():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != 3  # CUDA_ERROR_NOT_INITIALIZED


def fork_case(case, device, file):
    """Returns the pid of a process that runs the case."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    code = 1
    with contextlib.suppress(BaseException):
        log = os.open(f"{file}.log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if case.ranks == 1 and not driver_is_initialized():
            code = run_rank(case, device, file)
        else:
            launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(case.ranks)]
            code = subprocess.run([sys.executable, *(launcher if case.ranks > 1 else ()), __file__, "--device", device,
                                   "--rank-of", case.name, file],
                                  env={**os.environ, "ZERO_SHARE_GPU": "1", "OMP_NUM_THREADS": "1"}).returncode
    os._exit(code)


def fault_of(case, results):
    """Returns why the results of a case's ranks are wrong, or ""."""
    if len(results) < case.ranks:
        return "it wrote no result"
    for rank, result in enumerate(results):
        if "error" in result:
            return f"rank {rank}: {result['error'].strip().splitlines()[-1]}"
        if result["ranks"] != case.ranks:
            return f"rank {rank} trains with {result['ranks']} ranks"
    mean = [sum(values) / case.ranks for values in zip(*(result["losses"] for result in results))]
    plain = results[0]["plain"]
    furthest = max(abs(a - b) for a, b in zip(mean, plain, strict=True))
    if not furthest <= TOLERANCE["bf16" if case.autocast else case.dtype]:
        return f"losses {mean}, by the plain loop {plain}"
    return ""


class Contact:
    def __init__(self, device, folder, json_file):
        self.device, self.folder, self.json_file = device, folder, json_file
        self.failed, self.digests = [], {}
        self.passed = set()  # in an earlier call
        for line in pathlib.Path(json_file).read_text().splitlines() if json_file and os.path.exists(json_file) else ():
            with contextlib.suppress(json.JSONDecodeError):  # cut off as the machine was
                record = json.loads(line)
                if record["ok"] and record["case"] in CASES:
                    self.passed.add(record["case"])
                    self.first_of(CASES[record["case"]], record["digest"])

    def first_of(self, case, digest):
        """Returns the name and the digest of the group's first case that has passed, which may be this one."""
        return self.digests.setdefault(case.group or case.name, (case.name, digest))

    def note(self, case, begin, results, why):
        digest = results[0].get("digest", "") if results else ""
        first, expected = ("", digest) if why else self.first_of(case, digest)
        if digest != expected:
            why = f"digest {digest}, and {first} has {expected}"
        print(f"figure {case.name} {'failed' if why else 'ok'}{'  (' + why + ')' if why else ''}", flush=True)
        if why:
            self.failed.append(case.name)
            print(pathlib.Path(f"{self.folder}/{case.name}.log").read_text()[-3000:], flush=True)
            for result in results:
                print(result.get("error", ""), flush=True)
        if self.json_file:
            with open(self.json_file, "a") as file:
                file.write(json.dumps({"case": case.name, "ok": not why, "why": why, "digest": digest,
                                       "seconds": round(time.monotonic() - begin, 1)}) + "\n")

    def run(self, cases, jobs, seconds):
        """Runs the cases, `jobs` at a time; one that is not done within its limit has failed."""
        end = time.monotonic() + seconds
        running = {}  # by pid: case, start
        left = [case for case in cases if case.name not in self.passed]
        while left or running:
            while left and len(running) < jobs:
                case = left.pop(0)
                running[fork_case(case, self.device, f"{self.folder}/{case.name}")] = case, time.monotonic()
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid:
                self.take(*running.pop(pid), "")
                continue
            for pid, (case, begin) in list(running.items()):
                if time.monotonic() > min(end, begin + CASE_LIMIT_S):
                    kill_session(pid)
                    os.waitpid(pid, 0)
                    self.take(*running.pop(pid), f"killed after {time.monotonic() - begin:.0f} s")
            if time.monotonic() > end:
                for case in left:
                    print(f"not run, since the time is over: {case.name}")
                self.failed += [case.name for case in left]
                left = []
            time.sleep(0.02)

    def take(self, case, begin, why):
        files = sorted(pathlib.Path(self.folder).glob(f"{case.name}.[0-9]"))
        results = [json.loads(file.read_text()) for file in files]
        self.note(case, begin, results, why or fault_of(case, results))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--json", help="append one object per case to this file")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--rank-of", nargs=2, metavar=("CASE", "FILE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ["DS_ACCELERATOR"] = args.device
    # Bits of two runs are compared.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_num_threads(1)
    if args.rank_of:
        name, file = args.rank_of
        return run_rank(CASES[name], args.device, file)
    wanted = [case for case in CASES.values()
              if not args.cases or any(fnmatch.fnmatch(case.name, pattern) for pattern in args.cases)]
    if not wanted:
        parser.error(f"no case is named {' '.join(args.cases)}; --list shows all")
    if args.list:
        print("\n".join(case.name for case in wanted))
        return 0
    if any(case.hugging_face for case in wanted):
        import transformers  # noqa: F401  (once, and not in each process)
    with tempfile.TemporaryDirectory() as folder:
        contact = Contact(args.device, folder, args.json)
        contact.run(wanted, args.jobs, args.seconds)
    passed = len(wanted) - len(contact.failed)
    print(f"{passed} of {len(wanted)} cases passed on {args.device}" +
          (f"; failed: {' '.join(contact.failed)}" if contact.failed else ""))
    return bool(contact.failed)


if __name__ == "__main__":
    sys.exit(main())
