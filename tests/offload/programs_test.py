"""Offload in whole jobs of train_gpt: bits, system calls that are forbidden, and files that a job leaves behind.

usage: programs_test.py MPIEXEC TRAIN_GPT quick|memory
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import launch  # noqa: E402

MPIEXEC, PROGRAM = launch.absolute(sys.argv[1:3])
WITHOUT_URING = pathlib.Path(__file__).with_name("without_uring.py")
MIB, GIB = 1 << 20, 1 << 30


def require(condition, problem):
    if not condition:
        raise launch.Failed(problem)


def keys(folder, stage, parameters=False, **more):
    values = {"train_micro_batch_size_per_gpu": 1, "zero_optimization.stage": stage, "bf16.enabled": "true",
              "zero_core.offload_chunk_bytes": 200000, "aio.block_size": 16384,
              "zero_optimization.offload_optimizer.device": "nvme",
              "zero_optimization.offload_optimizer.nvme_path": folder, **more}
    if parameters:
        values |= {"zero_optimization.offload_param.device": "nvme", "zero_optimization.offload_param.nvme_path": folder,
                   "zero_optimization.offload_param.max_in_cpu": 0}
    return launch.settings(values)


def arguments(settings, steps=4, model="tiny"):
    return ["--model", model, "--sequence-length", 16, "--steps", steps, *settings]


def job(folder, settings, wrapper=(), steps=4, ranks=2):
    command = [*wrapper, PROGRAM, "--threads", "1", *map(str, arguments(settings, steps))]
    return launch.Job(launch.mpirun(MPIEXEC, ranks, *command), folder)


def bits(folder):
    """None, nvme states, nvme states and parameters: the same steps and digest."""
    plain = launch.settings({"train_micro_batch_size_per_gpu": 1, "zero_optimization.stage": 3, "bf16.enabled": "true"})
    for ranks in (1, 3):
        expected = launch.train(MPIEXEC, PROGRAM, ranks, arguments(plain)).bits()
        for stage, parameters in ((1, False), (2, False), (3, True)):
            run = launch.train(MPIEXEC, PROGRAM, ranks, arguments(keys(folder, stage, parameters)))
            require(run.bits() == expected, f"{ranks} ranks, stage {stage}: other bits than without offload")
            rests = run.summary["ranks"][0]["in_file"]["optimizer_state"]
            require(rests["planned"] == rests["peak"] > MIB // 8, f"no file in the plan: {rests}")
    require(not os.listdir(folder), f"left behind: {os.listdir(folder)}")


def in_memory(folder):
    """Parameters that max_in_cpu keeps in memory: a notice."""
    for most, stays in ((10**9, True), (0, False)):
        settings = keys(folder, 3, True) + ["--set", f"zero_optimization.offload_param.max_in_cpu={most}"]
        run = job(folder, settings, steps=1)
        require(run.finish(60) == 0, run.text())
        require(("all parameters stay in memory, because max_in_cpu" in run.text()) == stays, run.text())


def lacking(folder):
    """If the system forbids a call, a notice names it and another way is used. Root has to drop its right to lock any
    memory."""
    for wrapper, said, needs_root in (
            ((sys.executable, str(WITHOUT_URING)), "io_uring is not available", False),
            (("setpriv", "--bounding-set=-ipc_lock", "prlimit", "--memlock=65536:65536"),
             "buffers cannot be registered", True)):
        if needs_root and os.geteuid() != 0:
            print(f"not root: no test of \"{said}\"")
            continue
        with tempfile.TemporaryDirectory() as place:
            run = job(place, keys(folder, 2), wrapper)
            require(run.finish(120) == 0, f"{wrapper}: exit code {run.code}\n{run.text()}")
            require(said in run.text() or "built without io_uring" in run.text(), f"not said: {said}\n{run.text()}")


class SmallDisk:
    """An ext4 in a file of that folder that takes space as it is written; None if it cannot be mounted."""

    def __init__(self, folder, mebibytes):
        image, self.mount = os.path.join(folder, "image"), os.path.join(folder, "mount")
        os.mkdir(self.mount)
        self.mounted = False
        for command in (["truncate", "-s", f"{mebibytes}M", image],
                        ["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image],
                        ["mount", "-o", "loop", image, self.mount]):
            if subprocess.run(command, capture_output=True, check=False).returncode != 0:
                print(f"{command[0]} fails here: no test of a full disk")
                return
        self.mounted = True

    def __enter__(self):
        return self.mount if self.mounted else None

    def __exit__(self, *_):
        if self.mounted:
            launch.unmount(self.mount)


def fill(folder, left):
    """Fills the disk except for this many bytes."""
    free = os.statvfs(folder)
    with open(os.path.join(folder, "filler"), "wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, free.f_bavail * free.f_frsize - left)


def small_disk(folder):
    """If there is too little space, the start fails with the figures."""
    with SmallDisk(folder, 8) as disk, tempfile.TemporaryDirectory() as place:
        if disk is None:
            return
        fill(disk, MIB // 2)
        run = job(place, keys(disk, 2))
        require(run.finish(120) == 13, f"exit code {run.code} on a full disk\n{run.text()}")
        require("iB for offload in nvme_path" in run.text(), run.text())


def full_later(folder):
    """A disk that reserves space and has none when it is written, like thin volumes."""
    with SmallDisk(folder, 32) as outer:
        if outer is None:
            return
        with SmallDisk(outer, 64) as thin, tempfile.TemporaryDirectory() as place:
            if thin is None:
                return
            fill(outer, MIB // 4)
            run = job(place, keys(thin, 2, **{"zero_optimization.offload_optimizer.fast_init": "true"}), steps=40)
            require(run.finish(120) == 19, f"exit code {run.code} on a disk that fills up\n{run.text()}")
            require(re.search(r"offload: write of block \d+ of .* \(errno (5|28)\)", run.text()), run.text())


def together_and_killed(folder):
    """Two jobs in a folder; one of them is killed while it swaps."""
    with tempfile.TemporaryDirectory() as place:
        first = job(place, keys(folder, 3, True), steps=400)
        second = job(place, keys(folder, 3, True))
        require(second.finish(120) == 0, second.text())
        deadline = time.monotonic() + 60
        while len(first.ranks()) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in first.ranks().values():
            os.kill(pid, signal.SIGKILL)
        first.finish(60)
        require(not os.listdir(folder), f"left behind: {os.listdir(folder)}")


class ControlGroup:
    """A limit on the memory of its processes, page cache included; `folder` is None if there can be no cgroup."""

    def __init__(self, limit):
        root = pathlib.Path("/sys/fs/cgroup")
        unified = (root / "cgroup.controllers").exists()
        limits, self.peak_file = (("memory.max", "memory.peak") if unified else
                                  ("memory.limit_in_bytes", "memory.max_usage_in_bytes"))
        self.folder = (root if unified else root / "memory") / f"zero-offload-{os.getpid()}"
        try:
            self.folder.mkdir()
            (self.folder / limits).write_text(str(limit))
        except OSError:
            if self.folder.is_dir():
                self.folder.rmdir()
            self.folder = None

    def wrapper(self):
        return ("sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh") if self.folder else ()

    def peak(self):
        file = self.folder and self.folder / self.peak_file
        return int(file.read_text()) if file and file.exists() else 0

    def remove(self):
        if self.folder:
            self.folder.rmdir()


def resident(run):
    """Returns the sum of the ranks' PSS without pages of files, as the ranks themselves report."""
    total = 0
    for pid in run.ranks().values():
        try:
            text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += sum(int(kilobytes) for kilobytes in re.findall(r"^Pss_(?:Anon|Shmem): +(\d+) kB$", text, re.MULTILINE)) * 1024
        except OSError:  # it has ended
            continue
    return total


def watched(command, folder, log):
    """Runs the job to its end; returns its log and the largest sum of PSS."""
    run = launch.Job(command, folder)
    largest, deadline = 0, time.monotonic() + 1500
    while run.process.poll() is None and time.monotonic() < deadline:
        largest = max(largest, resident(run))
        time.sleep(0.2)
    require(run.finish(1) == 0, f"exit code {run.code}\n{run.text()}")
    return launch.Run(log, run.printed()), largest


def memory(folder):
    """More than 5.5 GiB of states, gradients and parameters train within 1900 MiB over all ranks."""
    limit, log = 1900 * MIB, os.path.join(folder, "log.json")
    model = launch.write_model(os.path.join(folder, "model.json"), 14, 1536, 12, 256, 64)
    values = keys(folder, 3, True, **{"zero_core.offload_chunk_bytes": 24_000_000, "aio.block_size": MIB,
                                      "zero_optimization.offload_optimizer.fast_init": "true",
                                      "zero_optimization.offload_param.buffer_count": 2})
    group = ControlGroup(limit)
    try:
        run, largest = watched(launch.mpirun(MPIEXEC, 2, *group.wrapper(), PROGRAM, "--threads", "1", "--log-json", log,
                                             *map(str, arguments(values, 3, model))), folder, log)
        peak = group.peak()
    finally:
        group.remove()
    ranks = run.summary["ranks"]
    files = sum(account["peak"] for rank in ranks for account in rank["in_file"].values())
    planned = sum(rank["baseline_bytes"] + sum(account["planned"] for account in rank["memory"].values())
                  for rank in ranks)
    print(f"{files / GIB:.2f} GiB in files; memory: {planned / GIB:.2f} GiB planned with what programs have anyway, "
          f"{largest / GIB:.2f} GiB resident (PSS) at most, {peak / GIB:.2f} GiB in the control group (0: there is none)")
    print("\n".join(line for line in run.printed.splitlines() if line.startswith("file ")))
    require(files > 6_000_000_000, f"the files hold {files} bytes")
    require(planned < limit and largest < limit and peak <= limit, f"planned {planned}, resident {largest}, {peak}")
    require(largest <= planned + 64 * MIB, f"planned {planned}, resident {largest}")
    losses = [step["loss"] for step in run.steps]
    require(len(losses) == 3 and all(loss is not None and loss < 10 for loss in losses), f"losses {losses}")


def main():
    tests = {"quick": (bits, in_memory, lacking, small_disk, full_later, together_and_killed), "memory": (memory,)}[sys.argv[3]]
    for test in tests:
        with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
            test(folder)
        print(f"{test.__name__}: {test.__doc__.splitlines()[0]}")


if __name__ == "__main__":
    main()
