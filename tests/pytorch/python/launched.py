"""A rank of a job that any launcher may have started: launched.py CASE [ARGUMENT]..."""

import hashlib
import os
import re
import signal
import sys
import time

import torch
import torch.distributed as dist

import zerocore
from models import VOCABULARY, TiedTransformer


def say(text):
    """Writes one line at once: print() may write its arguments and the end of the line separately, with another rank's
    text in between."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def make_engine(stage, **core):
    torch.manual_seed(1)
    engine, *_ = zerocore.initialize(model=TiedTransformer(), config={
        "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage},
        "zero_core": {"gradient_sync": "each", **core}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}})
    torch.manual_seed(2 + engine.global_rank)
    return engine


def step(engine):
    engine.backward(engine(torch.randint(0, VOCABULARY, (2, 6))))
    engine.step()


def train():
    """Trains all stages; prints the digests and how the ranks are connected."""
    ranks = zerocore.ranks()
    for stage in range(4):
        engine = make_engine(stage)
        for _ in range(3):
            step(engine)
        digest = engine.digest()
        if ranks.rank == 0:
            say(f"stage {stage} on {ranks.size}: {digest} {engine.last_step.loss}")
        engine.destroy()
    if ranks.rank == 0:
        say(f"{ranks.describe()}, with {mpi_library()}")


def numbered_step(engine, number):
    """With a batch that depends on the step alone, and on the rank."""
    torch.manual_seed(100 * number + engine.global_rank)
    step(engine)


def saves(folder, stage):
    """A checkpoint after two of four steps: the digests then and at the end."""
    engine = make_engine(int(stage))
    for number in range(4):
        numbered_step(engine, number)
        if number == 1:
            at_save = engine.digest()
            engine.save_checkpoint(folder)
    print_on_root(f"saved {at_save}, ended {engine.digest()}")


def resumes(folder, stage):
    """Takes the last two of these steps."""
    engine = make_engine(int(stage))
    path, _ = engine.load_checkpoint(folder)
    assert path is not None, folder
    at_load = engine.digest()
    for number in (2, 3):
        numbered_step(engine, number)
    print_on_root(f"saved {at_load}, ended {engine.digest()}")


def print_on_root(text):
    if zerocore.ranks().rank == 0:
        say(text)


def examined():
    """zerocore.doctor() between two steps; all ranks have the same report."""
    engine = make_engine(3)
    step(engine)
    found = zerocore.doctor([os.getcwd()])
    step(engine)
    text = str(found)
    assert found.data["hosts"][0]["disks"][0]["path"] == os.getcwd(), found.data
    say(f"examined {len(found.data['hosts'])} hosts, {len(found.data['links'])} links: {hash_of(text)}")


def hash_of(text):
    return hashlib.sha256(text.encode()).hexdigest()


def fails(how, where):
    """Ends the rank `where` in the given way in its third step."""
    engine = make_engine(3, time_limit_seconds=3)
    if engine.global_rank == 0:
        say("at work")
    for count in range(100000):
        if count == 2 and engine.global_rank == int(where):
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            if how == "raises":
                raise KeyError("a name that the script does not have")
            if how == "refused":
                raise zerocore.ConfigError("this rank's own refusal")
        step(engine)


def restarts():
    """One rank fails in the job's first attempt."""
    engine = make_engine(2)
    step(engine)
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and engine.global_rank == 1:
        raise zerocore.ConfigError("the first attempt ends here")
    step(engine)
    if engine.global_rank == 0:
        say(f"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']} done")


def groups(order):
    """torch.distributed next to the engine: made by zerocore, or by the script, before the ranks or after."""
    if order == "script_first":
        dist.init_process_group("gloo")
    zerocore.ranks()
    if order == "script_later":
        dist.init_process_group("gloo")
    if not order.startswith("script"):
        refuses_other_ranks()
    zerocore.init_distributed(rank=zerocore.ranks().rank)
    total = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(total)
    assert total == sum(range(1, zerocore.ranks().size + 1)), total
    assert int(os.environ["LOCAL_RANK"]) == zerocore.ranks().local_rank
    assert (dist.get_rank(), dist.get_world_size()) == (zerocore.ranks().rank, zerocore.ranks().size)
    say(f"group of {dist.get_world_size()}")
    if order.startswith("script"):
        dist.destroy_process_group()  # zerocore destroys its own at exit


def refuses_other_ranks():
    for name in ("rank", "world_size"):
        try:
            zerocore.init_distributed(**{name: 9})
        except zerocore.UsageError as error:
            assert f"{name} is 9, and the launcher of this process says" in str(error), error
        else:
            raise AssertionError(f"another {name} than the launcher's is taken")


def spawns(port):
    """Starts its ranks itself, of which the second fails."""
    torch.multiprocessing.spawn(_fails_in_step_2, (port,), nprocs=2)


def _fails_in_step_2(rank, port):
    zerocore.init_distributed(init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    assert (zerocore.ranks().rank, zerocore.ranks().size, os.environ["RANK"]) == (rank, 2, str(rank))
    engine = make_engine(2)
    for number in range(3):
        step(engine)
        if rank and number:
            raise ValueError("a bug of the second worker")


def arrives(*seconds):
    """Starts only the ranks."""
    if seconds:
        time.sleep(float(seconds[0]))
    ranks = zerocore.ranks()
    say(f"arrived {ranks.rank} of {ranks.size} {'with' if mpi_library() else 'without'} MPI")


def mpi_library():
    """Returns the path of the MPI library that this process has loaded, or None."""
    with open("/proc/self/maps") as maps:
        found = re.search(r"/\S*/libmpi\.so\S*", maps.read())
    return found and found[0]


def conforms(transport):
    """The conformance suite of the host transports, in C++."""
    import gloo_conformance

    from zerocore import launch

    gloo_conformance.check(launch.rendezvous(), transport)


if __name__ == "__main__":  # not in a worker of spawns()
    globals()[sys.argv[1]](*sys.argv[2:])
