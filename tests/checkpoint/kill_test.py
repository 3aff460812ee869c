"""kill -9 of all ranks at each point of a save: the old or the new checkpoint is complete, and the next start removes
the remains. If a rank is stopped there, the others name it, and the job ends.

usage: kill_test.py KILL_PROGRAM ZERO MPIRUN
"""

import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import launch  # noqa: E402

PROGRAM, ZERO, MPIEXEC = launch.absolute(sys.argv[1:4])
LIMIT_S = 60
STALLED = 18
COMMITTED_FROM = 7  # K7: after the rename, since other processes see that at once


def expect(job, condition, problem):
    if not condition:
        raise launch.Failed(problem + "\n" + job.text())


def run(folder, *arguments):
    job = launch.Job(launch.mpirun(MPIEXEC, 2, PROGRAM, os.path.join(folder, "root"), *arguments), folder)
    job.finish(LIMIT_S)
    return job


def digest(job):
    return re.search("digest (.*)", job.printed()).group(1)


def killed_at(folder, point):
    first = run(folder, f"K{point}")
    expect(first, first.code != 0 and "saved" not in first.printed(), f"exit code {first.code}: it was not killed")
    found = "new" if point >= COMMITTED_FROM else "old"
    verify = launch.Job([ZERO, "checkpoint", "verify", os.path.join(folder, "root")], folder)
    expect(verify, verify.finish(LIMIT_S) == 0, "what is found is not whole")
    expect(verify, f"/root/{found}: whole" in verify.printed(), f"not the {found} one")
    # The next start resumes from it, removes the remains, and saves.
    second = run(folder, "none")
    expect(second, second.code == 0 and f"resumed {found}" in second.printed(), "it does not go on")
    expect(second, digest(first) == digest(second), "another state")
    saved = "newer" if found == "new" else "new"
    names = sorted(os.listdir(os.path.join(folder, "root")))
    expect(second, names == [".lock", "latest", saved], f"left: {names}")


def stopped_at(folder, point, rank):
    job = launch.Job(launch.mpirun(MPIEXEC, 2, PROGRAM, os.path.join(folder, "root"), point, "stop"), folder)
    expect(job, job.finish(LIMIT_S) == STALLED, "it does not end as a stall")
    words = "\n".join(job.messages())
    expect(job, re.search(rf"waited 5 s in all_gather of the (writing|commit) of new .*: rank {rank} has not entered it",
                          words), "it does not say what it waited for")
    left = job.leftovers()
    expect(job, not left, f"left: {left}")
    expect(job, "resumed old" in run(folder, "none").printed(), "the next start does not go on")


def hung(folder):
    """A call on one rank does not return: no rank makes progress, and even that rank ends."""
    job = launch.Job(launch.mpirun(MPIEXEC, 2, PROGRAM, os.path.join(folder, "root"), "K2", "hang"), folder)
    expect(job, job.finish(LIMIT_S) == STALLED, "it does not end as a stall")
    # Rank 0 sees either that rank 1 is absent, or that its work does not proceed.
    expect(job, re.search("the writing of new has made no progress for 5 s: rank 1 is at "
                          "|waited 5 s in all_gather of the writing of new .*: rank 1 has not entered it",
                          "\n".join(job.messages())), "it does not say what it waited for")
    expect(job, not job.leftovers(), "something is left")


launch.run_all([*((f"K{point}", lambda folder, point=point: killed_at(folder, point)) for point in range(10)),
                ("a rank stopped while it writes", lambda folder: stopped_at(folder, "K1", 1)),
                ("a file system that hangs", hung),
                ("rank 0 stopped in the commit", lambda folder: stopped_at(folder, "K5", 0))], at_once=4)
