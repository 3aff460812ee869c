"""Tests copies of the training state in memory (zero_core.peer_copies) under `zero run --restarts`: after a failure the
training continues from the newest complete copy, with the bits of an undisturbed run, and nothing is left behind.

usage: peer_copies.py MPIEXEC TRAIN_GPT ZERO [TEST...]
"""

import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import launch  # noqa: E402
import restarts  # noqa: E402
from multi_node_hosts import Hosts, NotAllowed  # noqa: E402

EVERY, STEPS, RANKS = 5, 800, 3
KEYS = {"train_batch_size": 12, "train_micro_batch_size_per_gpu": 2, "steps_per_print": 1, "zero_optimization.stage": 2,
        "zero_core.rank_independent": "true", "zero_core.peer_copies": 1, "zero_core.peer_copies_every": EVERY}
FROM_MEMORY = r"^zero run: restart \d+ of \d+: generation \d+, with \d+ ranks? of \d+, from the copy of step (\d+) in memory$"
FROM_DISK = r"^zero run: restart \d+ of \d+: generation \d+, with \d+ ranks? of \d+, from the checkpoint of step (\d+)$"


def program(folder, save_every=10 * STEPS, keys=None):
    """Returns a train_gpt whose result does not depend on the number of its ranks."""
    return [restarts.TRAIN_GPT, "--model", "tiny", "--sequence-length", "8", "--steps", str(STEPS), "--threads", "1",
            "--log-json", f"{folder}/log.json", "--checkpoint", f"{folder}/saves", "--save-every", str(save_every), "--keep",
            "20", *launch.settings({**KEYS, **(keys or {})})]


@functools.cache
def undisturbed_digest():
    with tempfile.TemporaryDirectory() as folder:
        job = launch.Job(launch.mpirun(restarts.MPIEXEC, 1, *program(folder)), folder)
        if job.finish(restarts.LIMIT_S) != 0:
            raise launch.Failed("the undisturbed run fails\n" + job.text())
        if "zero_core.peer_copies: no copies are made in memory: host " not in job.text():
            raise launch.Failed("no notice that there is no keeper\n" + job.text())
        return launch.Run(f"{folder}/log.json", "").summary["digest"]


class Training(restarts.Training):
    def __init__(self, folder, save_every=10 * STEPS, options=("--restarts", "5"), hosts=None, keys=None):
        super().__init__(folder, RANKS, options=options, program=program(folder, save_every, keys), hosts=hosts)
        self.until(lambda: "the first copy in memory is complete" in self.error_text(), "the first copy")

    def keepers(self):
        def is_keeper(pid):
            try:
                return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2] == [b"keeper"]
            except OSError:
                return False
        return [pid for pid in self.processes() if is_keeper(pid)]

    def files(self):
        """Returns the sizes of the files that the keepers hold, by inode."""
        sizes = {}
        for pid in self.keepers():
            try:
                for name in os.listdir(f"/proc/{pid}/fd"):
                    if os.readlink(f"/proc/{pid}/fd/{name}").startswith("/memfd:zero copy"):
                        status = os.stat(f"/proc/{pid}/fd/{name}")
                        sizes[status.st_ino] = status.st_blocks * 512
            except OSError:
                pass  # closed in the meantime
        return sizes

    def expect_planned(self, held):
        """Compares the memory of these files with the ledger's, after the end of the training."""
        ranks = launch.Run(self.folder / "log.json", "").summary["ranks"]
        planned = [rank["memory"]["peer_copies"]["planned"] for rank in ranks]
        # A file takes whole pages of memory.
        excess = sum(held.values()) - sum(planned)
        self.expect(0 <= excess < 4096 * len(held), f"held {held}, planned {planned}")
        return planned

    def last_step(self):
        return int((re.findall(r"^step +(\d+)/", self.printed(), re.MULTILINE) or [0])[-1])

    def until_later(self, steps):
        """Waits for this number of further steps."""
        goal = self.last_step() + steps
        self.until(lambda: self.last_step() >= goal, f"step {goal}")

    def until_saved(self):
        """Waits until `zero run` can know a checkpoint: its directory exists before it is reported, but the second one is
        begun after the report of the first."""
        self.until(lambda: len(list((self.folder / "saves").glob("step-*"))) > 1, "two checkpoints")

    def until_resumed(self, count, pattern):
        """Waits until a step is made after this number of restarts. Returns the step that the last one resumed from."""
        self.until(lambda: len(re.findall(r"^zero run: step \d+ done, ", self.error_text(), re.MULTILINE)) >= count,
                   f"restart {count}")
        found = re.findall(pattern, self.error_text(), re.MULTILINE)
        self.expect(found, f"not printed: {pattern}")
        return int(found[-1])

    def expect_result(self, starts):
        self.expect_end(0, starts)
        digest = launch.Run(self.folder / "log.json", "").summary["digest"]
        self.expect(digest == undisturbed_digest(), "other weights than the undisturbed run")


def a_killed_rank(folder):
    """No checkpoint is on disk: the copy is all that the training continues from."""
    job = Training(folder)
    job.until(lambda: len(job.files()) == 2 * RANKS, "two copies of each file")
    held = job.files()
    job.send(signal.SIGKILL, 1)
    first = job.until_resumed(1, FROM_MEMORY)
    job.expect(first % EVERY == 0, f"a copy of step {first}")
    job.expect("zero: checkpoint: the copy of step" in job.error_text(), "the ranks do not say what they load")
    job.until_later(2 * EVERY)
    job.send(signal.SIGKILL)  # all ranks
    second = job.until_resumed(2, FROM_MEMORY)
    job.expect(second >= first, f"copies of steps {first} and {second}")
    job.expect_result([RANKS] * 3)
    planned = job.expect_planned(held)
    words = [restarts.ZERO, "plan", "--model", "tiny", "--sequence-length", "8", "--device", "cpu", "--ranks", str(RANKS),
             "--rows", "config", "--json", "-", *launch.settings(KEYS)]
    rows = json.loads(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout)
    job.expect(rows[0]["memory"]["peer_copies"] in planned, f"zero plan: {rows[0]['memory']}, the ledger: {planned}")


def fewer_ranks(folder):
    """The slot of a rank that was killed twice is lost, so that two ranks load the files of three."""
    job = Training(folder, options=("--elastic", "1:3"))
    for restart in (1, 2):
        job.send(signal.SIGKILL, 2)
        job.until_resumed(restart, FROM_MEMORY)
    job.expect_result([3, 3, 2])


def a_torn_copy(folder):
    """A rank is killed while a copy cannot be finished, since the keeper is stopped: the one before it is loaded."""
    job = Training(folder)
    keeper, = job.keepers()
    os.kill(keeper, signal.SIGSTOP)
    stopped = job.last_step()
    # Until the ranks wait for the memory of the copy, or have begun one. Not later, since after 10 s of silence the
    # keeper counts as lost, and the ranks go on without copies.
    before = -1
    while before < job.last_step() <= stopped + EVERY:
        before = job.last_step()
        time.sleep(1)
    job.send(signal.SIGKILL, 0)
    job.until(lambda: not job.ranks(), "the end of the ranks")
    os.kill(keeper, signal.SIGCONT)
    step = job.until_resumed(1, FROM_MEMORY)
    job.expect(step <= stopped + EVERY, f"a copy of step {step}, and the keeper was stopped at {stopped}")
    job.expect_result([RANKS] * 2)


def a_killed_keeper(folder):
    """The checkpoint on disk is loaded, and the next start makes copies again."""
    job = Training(folder, save_every=20)
    keeper, = job.keepers()
    os.kill(keeper, signal.SIGKILL)
    job.until(lambda: "the copy in memory failed, and none is made until the next start" in job.error_text(), "the notice")
    job.until_saved()
    job.send(signal.SIGKILL, 1)
    job.until_resumed(1, FROM_DISK)
    job.until_later(4 * EVERY)
    job.expect(job.keepers() not in ([], [keeper]), "no new keeper")
    job.expect_result([RANKS] * 2)


def hosts_of(job, hosts):
    return [set(job.keepers()) & set(hosts.processes(index)) for index in (0, 1)]


def a_lost_host(folder):
    """Its ranks' files are in the memory of the other host."""
    with Hosts([1, 2]) as hosts:
        job = Training(folder, options=("--restarts", "5", "--min-ranks", "1"), hosts=hosts)
        job.expect([len(keepers) for keepers in hosts_of(job, hosts)] == [1, 1], "not one keeper per host")
        hosts.stop(1)
        job.until_resumed(1, FROM_MEMORY)
        job.expect_result([3, *job.starts()[1:2]])  # the lost host may have answered again


def a_host_that_returns(folder):
    """Its new keeper is empty, and its ranks get their files from the other host."""
    with Hosts([1, 2]) as hosts:
        job = Training(folder, hosts=hosts)
        hosts.stop(1)
        job.until_resumed(1, FROM_MEMORY)
        job.until(lambda: len(job.files()) == 4 * RANKS, "two copies of each file on each host")
        held = job.files()
        job.expect_result([3, 3])
        job.expect_planned(held)


def main():
    tests = [a_killed_rank, fewer_ranks, a_torn_copy, a_killed_keeper]
    try:
        with Hosts([1, 1]):
            tests += [a_lost_host, a_host_that_returns]
    except NotAllowed as reason:
        print(f"skipped: no hosts of our own on this machine: {reason}")
    wanted = sys.argv[4:]
    undisturbed_digest()  # once, and not in each thread
    launch.run_all([(test.__name__, test) for test in tests if not wanted or test.__name__ in wanted], at_once=2)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that hosts are removed
    main()
