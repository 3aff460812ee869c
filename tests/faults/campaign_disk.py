"""The campaign's faults of disks and memory: a disk that becomes full, the states that a power loss leaves, a memory
cgroup."""

import os
import pathlib
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import launch  # noqa: E402


def small_disk(case, save_error):
    """Mounts a separate file system for the checkpoints, too small for another save. False if it cannot be mounted."""
    kept = case.folder / "kept"
    shutil.copytree(case.checkpoints, kept)
    room = sum(path.stat().st_size for path in kept.rglob("*")) // 1024 + case.random.randint(100, 1500)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room}k", "none", str(case.checkpoints)],
                      stderr=subprocess.DEVNULL).returncode != 0:
        return False
    try:
        shutil.copytree(kept, case.checkpoints, dirs_exist_ok=True)
        case.note(f"{room} KiB")
        job = case.start()
        case.end(job, (save_error,), "No space left|the file system has", messages=(1,))
        case.require((case.checkpoints / "step-120" / "manifest.json").exists(), "the checkpoint before is gone", job)
    finally:
        launch.unmount(case.checkpoints)
    return True


def lose_power(case):
    """Leaves in case.checkpoints a possible state of a disk that lost power at a random call of a save: all synced
    data, and any part of the rest."""
    record = case.folder / "record"
    job = case.start(wrapper=case.failing("", f"{record} {case.checkpoints}"), steps=160)
    case.end(job, (0,))
    calls = [line.split("\t") for line in record.read_text().splitlines()]
    begin = next(i for i, (op, path, *_) in enumerate(calls) if op == "make" and "/.tmp-step-160" in path)
    cut = case.random.randint(begin + 1, len(calls))
    case.note(f"power lost before call {cut - begin} of {len(calls) - begin}")
    made = case.folder / "made"
    case.checkpoints.rename(made)
    case.with_checkpoints()
    Disk(case, calls[begin:cut], made).leave()


class Disk:
    def __init__(self, case, calls, made):
        self.random, self.root, self.calls, self.made = case.random, case.checkpoints, calls, made
        self.temporary = pathlib.Path(calls[0][1])

    def index(self, op, path):
        found = [i for i, call in enumerate(self.calls) if call[0] == op and call[1] == str(path)]
        return found[-1] if found else None

    def lasts(self, at, directory):
        """Returns whether the entry that call `at` made still exists: always, if its directory was synced since."""
        synced = self.index("sync", directory)
        return (synced is not None and synced > at) or self.random.random() < 0.5

    def leave(self):
        renamed = self.index("rename", self.temporary)
        committed = renamed is not None and self.lasts(renamed, self.root)
        if committed or self.lasts(0, self.root):
            folder = self.root / ("step-160" if committed else self.temporary.name)
            folder.mkdir()
            for i, (op, path, *_) in enumerate(self.calls):
                path = pathlib.Path(path)
                if op == "create" and path.parent == self.temporary and self.lasts(i, self.temporary):
                    (folder / path.name).write_bytes(self.content(path, self.made / "step-160" / path.name))
        latest = self.root / ".tmp-latest"
        renamed = self.index("rename", latest)
        if renamed is not None and self.lasts(renamed, self.root):
            (self.root / "latest").write_bytes(self.content(latest, self.made / "latest"))
        elif self.index("create", latest) is not None and self.random.random() < 0.5:
            latest.write_bytes(self.content(latest, self.made / "latest"))

    def content(self, path, whole):
        """Returns the data written before the last sync, followed by any part of the data written since, or zeros."""
        whole = whole.read_bytes()
        synced, safe, written = self.index("sync", path), 0, 0
        for i, (op, name, _, offset, count) in enumerate(self.calls):
            if op == "write" and name == str(path):
                written = max(written, int(offset) + int(count))
                safe = written if synced is not None and i < synced else safe
        lost = self.random.randint(safe, max(safe, written))
        zeros = self.random.choice((0, written - lost))
        return whole[:lost] + bytes(zeros)


class MemoryGroup:
    """A group of processes with a limit of memory; the kernel kills the process that was entered first."""

    def __init__(self, limit):
        self.folder = None
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            base = "/sys/fs/cgroup/memory" if controllers == "memory" else "/sys/fs/cgroup"
            name = "memory.limit_in_bytes" if controllers == "memory" else "memory.max"
            folder = pathlib.Path(base + path) / f"campaign-{os.getpid()}-{time.monotonic_ns()}"
            if controllers not in ("memory", ""):
                continue
            try:
                folder.mkdir()
                (folder / name).write_text(str(limit))
                self.folder = folder
                return
            except OSError:
                if folder.is_dir():
                    folder.rmdir()

    def entering(self, rank):
        """Returns a wrapper that runs this rank in the group."""
        script = f'if [ "${{OMPI_COMM_WORLD_RANK:-0}}" = {rank} ]; then echo $$ > {self.folder}/cgroup.procs; ' \
                 'echo 1000 > /proc/self/oom_score_adj; fi; exec "$@"'
        return ["sh", "-c", script, "sh"]

    def used(self):
        for name in ("memory.usage_in_bytes", "memory.current"):
            if (self.folder / name).exists():
                return int((self.folder / name).read_text())
        return 0

    def fill(self, limit):
        """Allocates the rest of the group's memory, in a process that the kernel spares."""
        script = f"open('{self.folder}/cgroup.procs', 'w').write('0'); open('/proc/self/oom_score_adj', 'w').write('-1000')\n" \
                 f"held = bytearray({limit - self.used() + (8 << 20)})"
        try:
            subprocess.run([sys.executable, "-c", script], timeout=20, stderr=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            pass

    def remove(self):
        for _ in range(50):
            try:
                return self.folder.rmdir()
            except OSError:
                time.sleep(0.1)
