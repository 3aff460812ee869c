"""Faults of offload to files, and of the clocks that it waits by."""

import errno
import os
import shutil

from campaign_case import CONFIG, LIMIT_S, NO_RIGHT, OFFLOAD, WITHOUT_URING, fault_class, offloaded
from campaign_classes import at_a_random_moment, steps_logged


@fault_class("reads and writes of offload that fail", 12)
def failing_offload(case):
    more, case.stage = offloaded(case), max(case.stage, 1)
    op, action = case.random.choice((("read", errno.EIO), ("write", errno.EIO), ("write", errno.ENOSPC), ("read", "flip")))
    rule = f"{op} /nvme/ {case.random.randint(1, 300)} 99999999 {action}"
    job = case.start(*more, wrapper=["python3", str(WITHOUT_URING), *case.failing(rule)])
    case.end(job, (OFFLOAD,), "nvme", messages=(1,))
    case.finishes(*more)


@fault_class("io_uring requests of offload that fail", 6)
def failing_uring(case):
    """Requests fail; or they are short or interrupted, which does no harm."""
    more = offloaded(case)
    first = case.random.randint(1, 300)
    if case.random.random() < 0.4:
        action = case.random.choice(("short", errno.EINTR, errno.EAGAIN, "sleep30"))
        case.finishes(*more, wrapper=case.failing(f"uring ring {first} {first + 5} {action}"), checkpoint=False)
        return None
    action = case.random.choice((errno.EIO, errno.ENOSPC, errno.ENODEV))
    job = case.start(*more, wrapper=case.failing(f"uring ring {first} 99999999 {action}"))
    job.finish(LIMIT_S)
    if "io_uring is not available" in job.text():
        return NO_RIGHT
    case.end(job, (OFFLOAD,), "nvme", os.strerror(action), messages=(1,))
    case.finishes(*more)
    return None


@fault_class("slow and short transfers of offload", 6)
def harmless_offload(case):
    more, case.stage = offloaded(case), max(case.stage, 1)
    op = case.random.choice(("read", "write"))
    action = case.random.choice(("short", "sleep30", errno.EINTR, errno.EAGAIN))
    first = case.random.randint(1, 300)
    rule = f"{op} /nvme/ {first} {first + 5} {action}"
    job = case.start(*more, checkpoint=False, wrapper=["python3", str(WITHOUT_URING), *case.failing(rule)])
    case.end(job, (0,), messages=None)


@fault_class("the offload folder is deleted", 2)
def deleted_offload(case):
    more = offloaded(case)
    job = case.start(*more)
    at_a_random_moment(case, job)
    shutil.rmtree(case.folder / "nvme")
    case.end(job, (0, CONFIG))


@fault_class("a clock that jumps a day", 6)
def clock_jumps(case):
    """The clock jumps back, or back and forth, on one rank, at the start or later. Checkpoints are found by their
    steps, because by their times the older one is newer."""
    case.with_checkpoints()
    then = (case.checkpoints / "step-80" / "manifest.json").stat().st_mtime - 3600
    for path in (case.checkpoints / "step-120", *(case.checkpoints / "step-120").iterdir()):
        os.utime(path, (then, then))
    more = offloaded(case) if case.random.random() < 0.5 else ()
    first = case.random.choice((1, case.random.randint(1, 2000)))
    rule = f"clock realtime {first} 999999999 {case.random.choice(('back', 'swing'))}"
    case.finishes(*more, "--save-minutes", "60", wrapper=["python3", str(WITHOUT_URING), *case.failing(rule)])
    case.require(min(steps_logged(case)) == 121, "not from the newest")
    names = {path.name for path in case.checkpoints.iterdir()}
    case.require({"step-200", "step-240"} <= names and "step-160" not in names, f"kept: {names}")
    case.finishes(*more)
    case.require(not steps_logged(case), "not from the last")
