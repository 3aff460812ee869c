"""Process faults under mpirun: every error of one rank ends all ranks in seconds, with the first cause's exit code and
one message, and nothing is left behind.

usage: faults_test.py MPIEXEC FAULT_PROGRAM
"""

import concurrent.futures
import glob
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

MPIEXEC, PROGRAM = sys.argv[1:3]
LIMIT_S = 20
# Open MPI's launcher may hang or crash after all ranks have ended, if one of them died or left during MPI_Finalize
# (PMIx 4.2 uses freed memory). `zero run` ends such a launcher.
LAUNCHER_BROKE = (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT, 139, 134)


class Job:
    started = []

    def __init__(self, scenario, transport="shm", limit_ms=60000, ranks=3, options=()):
        self.ranks = ranks
        self.output = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [MPIEXEC, "--oversubscribe", *options, "-n", str(ranks), PROGRAM, scenario, transport, str(limit_ms)],
            stdout=subprocess.PIPE, stderr=self.output, text=True,
            env={**os.environ, "ZERO_TEST_NODES": "0,0,1" if transport == "hierarchical" else ""})
        self.pids = {}
        Job.started.append(self)

    def wait_until_at_work(self):
        for line in self.process.stdout:
            found = re.match(r"rank (\d+) pid (\d+)", line)
            if found:
                self.pids[int(found[1])] = int(found[2])
            if len(self.pids) == self.ranks:
                return
        raise AssertionError("the ranks did not start: " + self.text())

    def kill(self, rank, number):
        os.kill(self.pids[rank], number)

    def finish(self):
        """Returns the exit code; fails if the job does not end in time."""
        # Drains the pipe, so that no process blocks in a write.
        drain = threading.Thread(target=self.process.stdout.read, daemon=True)
        drain.start()
        begin = time.monotonic()
        try:
            code = self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("the job hangs: " + self.text()) from None
        self.seconds = time.monotonic() - begin
        return code

    def finish_ranks(self):
        """Like finish(), but kills a launcher that outlives all of its ranks."""
        deadline = time.monotonic() + LIMIT_S
        while self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
            if time.monotonic() > deadline - LIMIT_S / 2 and not any(map(is_alive, children_of(self.process.pid))):
                self.process.kill()
        return self.finish()

    def text(self):
        self.output.seek(0)
        return self.output.read()

    def messages(self):
        return [line for line in self.text().splitlines() if line.startswith("zero:")]

    def expect_gone(self, seconds=5):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            left = [pid for pid in self.pids.values() if is_alive(pid)]
            if not left:
                return
            time.sleep(0.05)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        raise AssertionError(f"processes are left: {left}")


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(child) for child in file.read().split()]
    except FileNotFoundError:
        return []


def expect(condition, job, what):
    if not condition:
        raise AssertionError(f"{what}\n--- stderr:\n{job.text()}")


def expect_one_message(job, *parts):
    messages = job.messages()
    expect(len(messages) == 1, job, f"one message expected, not {len(messages)}")
    for part in parts:
        expect(re.search(part, messages[0]), job, f"the message does not say {part!r}")


def one_rank_throws(transport):
    job = Job("throw", transport)
    expect(job.finish() == 16, job, "the exit code is not the first cause's")
    expect_one_message(job, "loss is not finite in step 20")


def a_rank_is_killed(transport):
    job = Job("work", transport)
    job.wait_until_at_work()
    job.kill(1, signal.SIGKILL)
    expect(job.finish() != 0, job, "success in spite of a dead rank")
    job.expect_gone()
    expect(len(job.messages()) <= 1, job, "more than one message")


def a_rank_is_killed_and_the_launcher_does_nothing(transport):
    job = Job("work", transport, options=["--enable-recovery"])
    job.wait_until_at_work()
    job.kill(1, signal.SIGKILL)
    job.finish_ranks()
    job.expect_gone()
    expect_one_message(job, r"rank 1 \(pid \d+ on host .*\) died", r"(all_gather|reduce_scatter) of unit h\.\d+")


def a_rank_is_killed_while_another_computes(transport):
    job = Job("compute", transport, options=["--enable-recovery"], ranks=2)
    pids = pids_of_children(job, 2)
    os.kill(pids[1], signal.SIGKILL)
    job.pids = dict(enumerate(pids))
    job.finish()
    job.expect_gone()
    expect_one_message(job, "died")


def pids_of_children(job, count):
    """Returns the pids of the ranks, in rank order, when they are working."""
    for _ in range(200):
        pids = children_of(job.process.pid)
        if len(pids) == count:
            time.sleep(1.5)
            return sorted(pids)
        time.sleep(0.05)
    raise AssertionError("the ranks did not start: " + job.text())


def a_rank_is_stopped(transport):
    job = Job("work", transport, limit_ms=700)
    job.wait_until_at_work()
    job.kill(2, signal.SIGSTOP)
    expect(job.finish() == 18, job, "the exit code is not that of a stall")
    job.expect_gone()
    # If the stopped rank is alone on its node, a rank that waits for one of its partners may report first.
    expect_one_message(job, "waited 700 ms in (all_gather|reduce_scatter) of unit",
                       "rank [02]" if transport == "hierarchical" else "rank 2")


def a_rank_leaves(transport):
    job = Job("leave", transport)
    expect(job.finish() != 0, job, "success in spite of a rank that left")
    job.expect_gone()


def calls_differ(transport):
    for scenario in ("mismatch", "barrier"):
        job = Job(scenario, transport, ranks=2)
        expect(job.finish() == 12, job, "the exit code is not that of a disagreement")
        expect_one_message(job, "rank 0 called reduce_scatter of unit", "rank 1 called")


def the_launcher_is_killed(transport):
    job = Job("work", transport)
    job.wait_until_at_work()
    leftovers = files_of_open_mpi(job)
    job.process.kill()
    job.process.wait()
    job.expect_gone(seconds=3)
    for path in leftovers:
        shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.unlink(path)


def files_of_open_mpi(job):
    """Returns files that Open MPI cannot remove if its launcher is killed."""
    found = set(glob.glob(f"{tempfile.gettempdir()}/ompi.*/pid.{job.process.pid}"))
    for pid in job.pids.values():
        with open(f"/proc/{pid}/maps", encoding="ascii") as file:
            found |= set(re.findall(r"/dev/shm/vader_segment\S+", file.read()))
    return found


def all_is_well(transport):
    job = Job("finish", transport)
    expect(job.finish() == 0, job, "a healthy job fails")
    expect(not job.messages(), job, "a healthy job complains")


def a_rank_does_not_come_to_the_end(transport):
    job = Job("stay", transport, limit_ms=700)
    expect(job.finish() == 18, job, "the exit code is not that of a stall")
    expect_messages_of_nodes(job, transport, "waited 700 ms in barrier of the end of the job")
    job = Job("finalize", transport, limit_ms=700)
    code = job.finish_ranks()
    expect(code == 18 or code in LAUNCHER_BROKE, job, f"the exit code {code} is not that of a stall")
    expect_messages_of_nodes(job, transport, "MPI_Finalize has not returned within 700 ms")


def expect_messages_of_nodes(job, transport, text):
    """Expects one message from each node, unless the launcher ended the others before."""
    messages = job.messages()
    expect(all(text in message for message in messages), job, "another reason")
    expect(len(messages) in ((1, 2) if transport == "hierarchical" else (1,)), job, "not one message of each node")


def left_behind(folder):
    """Returns files in this run's own TMPDIR, and in /dev/shm under the number of one of its processes, except Open
    MPI's."""
    pids = {str(pid) for job in Job.started for pid in (job.process.pid, *job.pids.values())}
    shared = [path for path in pathlib.Path("/dev/shm").iterdir() if pids & set(re.findall(r"\d+", path.name))]
    return [str(path) for path in (*pathlib.Path(folder).iterdir(), *shared)
            if not re.match(r"ompi\.|vader_segment", path.name)]


def main():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        failed = run_all()
        if left := left_behind(folder):
            failed += 1
            print("left behind:", left)
        tempfile.tempdir = None
    sys.exit(failed != 0)


def run_all():
    """Returns the number of failed tests."""
    os.environ["OMPI_ALLOW_RUN_AS_ROOT"] = os.environ["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    os.environ["OMPI_MCA_mpi_yield_when_idle"] = "1"
    tests = [(transport, test) for transport in ("shm", "mpi", "hierarchical")
             for test in (all_is_well, one_rank_throws, a_rank_is_killed,
                          a_rank_is_killed_and_the_launcher_does_nothing, a_rank_is_killed_while_another_computes,
                          a_rank_is_stopped, a_rank_leaves, calls_differ, the_launcher_is_killed,
                          a_rank_does_not_come_to_the_end)]
    # In parallel, since tests mostly wait.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return sum(pool.map(has_failed, tests))


def has_failed(case):
    transport, test = case
    begin = time.monotonic()
    try:
        test(transport)
        result = "ok"
    except AssertionError as error:
        result = f"FAILED: {error}"
    print(f"{transport} {test.__name__}: {result} ({time.monotonic() - begin:.1f} s)", flush=True)
    return result != "ok"


main()
