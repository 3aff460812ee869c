"""Tests jobs under `zero run --restarts` of which a rank computes wrong values (zero_core.recompute_every): its slot is
lost after two failures, and the training ends with the bits of a run that nothing happened to.

usage: wrong_rank.py MPIEXEC TRAIN_GPT ZERO PROGRAM [TEST...]
"""

import functools
import pathlib
import re
import signal
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import launch  # noqa: E402
import restarts  # noqa: E402

PROGRAM = launch.absolute(sys.argv[4:5])[0]
STEPS = 20
NAMED = r"^zero run: rank {} computed other values than other ranks \(code 16\), after step 7$"


def program(folder, stage, ranks, rank):
    return [PROGRAM, f"{folder}/saves", str(stage), str(STEPS), str(ranks), str(rank)]


def digest_of(job):
    found = re.findall(r"^digest ([0-9a-f]+)$", job.printed(), re.MULTILINE)
    job.expect(len(found) == 1, f"digests: {found}")
    return found[0]


@functools.cache
def undisturbed_digest():
    with tempfile.TemporaryDirectory() as folder:
        job = restarts.Training(folder, 1, program=program(folder, 0, 0, 0))
        job.expect_end(0, [1])
        return digest_of(job)


def a_slot_is_lost(folder, stage, ranks, rank):
    job = restarts.Training(folder, options=("--elastic", f"1:{ranks}"), program=program(folder, stage, ranks, rank))
    job.expect_end(
        0, [ranks, ranks, ranks - 1], NAMED.format(rank),
        rf"^zero: rank {rank}: rank {rank} \(host \S+\) computed micro batch \d+ of step 8 otherwise than other ranks did, "
        r"first in the gradient of unit u1;",
        rf"^zero run: slot {rank} of this machine has failed twice: it is used again only if --min-ranks needs it$",
        r"^zero run: restart 2 of 10: generation 3, with \d ranks? of \d, from the checkpoint of step 6$")
    job.expect(digest_of(job) == undisturbed_digest(), "another result than that of an undisturbed run")


def one_of_four(folder):
    a_slot_is_lost(folder, 3, 4, 2)


def the_first_of_three(folder):
    a_slot_is_lost(folder, 1, 3, 0)


def one_of_two(folder):
    """Both are suspect if the wrong one repeats its error, so no slot is lost, and the same failure ends the job."""
    job = restarts.Training(folder, options=("--elastic", "1:2"), program=program(folder, 2, 2, 1))
    job.expect_end(16, [2, 2], r"rank 0 \(host \S+\), rank 1 \(host \S+\) computed micro batch \d+ of step 8 with different "
                   r"results, and none of them is that of most", r"this is a crash loop: the same failure at the same step")


def main():
    tests = [one_of_four, the_first_of_three, one_of_two]
    wanted = sys.argv[5:]
    launch.run_all([(test.__name__, test) for test in tests if not wanted or test.__name__ in wanted], at_once=3)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that jobs are removed
    main()
