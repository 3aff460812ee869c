"""Jobs over several hosts, for real: bits, bytes, time over a slow link, and the end of a job that fails.

usage: multi_node.py MPIEXEC NODE_PROGRAM FAULT_PROGRAM [TRAIN_GPT]

Exits with 77 where this machine cannot have such hosts (no root, no namespaces).
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from multi_node_hosts import Hosts, NotAllowed  # noqa: E402

MPIEXEC, NODE_PROGRAM, FAULT_PROGRAM, *TRAIN_GPT = [os.path.abspath(p) if os.sep in p else p for p in sys.argv[1:]]
LIMIT_S = 120
STEPS, COUNT = 5, 100_003  # elements of bf16 per rank
BY_NODE = ("--map-by", "node")


def run(line, environment=None, limit=LIMIT_S):
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit,
                          env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                               "OMPI_MCA_mpi_yield_when_idle": "1", **(environment or {})})
    return done


def expect(condition, what, done=None):
    if not condition:
        raise AssertionError(what + (f"\n--- stdout\n{done.stdout}--- stderr\n{done.stderr}" if done else ""))


def measured(line, environment=None):
    done = run(line, environment)
    expect(done.returncode == 0, f"exit code {done.returncode}", done)
    return dict(l.split(" ", 1) for l in done.stdout.splitlines() if " " in l)


def on_one_host(ranks, *program, environment=None):
    return measured([MPIEXEC, "--oversubscribe", "-n", str(ranks), *program], environment)


def arguments(group, count=COUNT, steps=STEPS, transport="auto"):
    return [NODE_PROGRAM, transport, str(group), str(count), str(steps)]


def node_items(nodes, group, node):
    """What a node sends of a slice: one sum per reduce group that it holds, else the values of each rank."""
    items = 0
    for first in range(0, len(nodes), group):
        members = nodes[first:first + group]
        items += 1 if set(members) == {node} else members.count(node)
    return items


def bytes_between(nodes, group, count, steps, flat=False):
    size, slice_bytes = len(nodes), 2 * count
    total = 0
    for node in set(nodes):
        here = nodes.count(node)
        reduced = (size - here) * (here if flat else node_items(nodes, group, node))
        gathered = here * ((size - here) if flat else len(set(nodes)) - 1)
        total += (reduced + 2 * gathered) * slice_bytes
    return total * steps


def bits_and_bytes(slots, group, options=()):
    ranks = sum(slots)
    with Hosts(slots) as hosts:
        got = measured(hosts.mpirun(MPIEXEC, ranks, *arguments(group), options=options))
    expected = on_one_host(ranks, *arguments(group))
    nodes = [int(word) for word in got["nodes"].split(",")]
    expect(len(set(nodes)) == len(slots), f"the ranks see other nodes: {nodes}")
    expect(expected["transport"] == "shm" and got["transport"] == ("mpi" if max(slots) == 1 else "hierarchical"),
           f"over {got['transport']}, and {expected['transport']} on one host")
    expect(got["hash"] == expected["hash"], f"other bits than on one host: {nodes}")
    between = bytes_between(nodes, group, COUNT, STEPS)
    expect(int(got["between"]) == between, f"{got['between']} bytes between hosts, not {between}")
    return f"nodes {got['nodes']}: {between} bytes between hosts"


def two_hosts():
    return bits_and_bytes([2, 2], 2)


def two_hosts_round_robin():
    return bits_and_bytes([2, 2], 2, BY_NODE)


def groups_beyond_a_host():
    return bits_and_bytes([2, 2], 4)


def unequal_hosts():
    return bits_and_bytes([3, 1], 3)


def unequal_hosts_round_robin():
    return bits_and_bytes([1, 3], 2, BY_NODE)


def three_hosts():
    return bits_and_bytes([2, 1, 2], 2)


def a_rank_per_host():
    return bits_and_bytes([1, 1, 1], 1)


def a_slow_link():
    """In turns; the link is what takes the time."""
    count, steps, turns = 1_000_000, 3, 3
    spent = {"hierarchical": [], "mpi": []}
    with Hosts([2, 2], "1gbit") as hosts:
        for _ in range(turns):
            for transport, times in spent.items():
                before = hosts.bytes_sent()
                got = measured(hosts.mpirun(MPIEXEC, 4, *arguments(2, count, steps, transport)))
                on_link = hosts.bytes_sent() - before
                between = bytes_between([0, 0, 1, 1], 2, count, steps, flat=transport == "mpi")
                expect(int(got["between"]) == between, f"{transport}: {got['between']} bytes, not {between}")
                expect(between <= on_link <= 1.1 * between + 1e6, f"{transport}: {on_link} bytes on the link")
                times.append(float(got["milliseconds"]))
    ours, flat = (sorted(times)[turns // 2] for times in spent.values())
    expect(ours < flat, f"hierarchical {ours} ms, flat {flat} ms")
    return f"{ours:.0f} ms a step, flat exchange {flat:.0f} ms, ratio {flat / ours:.2f}"


def an_error_on_the_other_host():
    with Hosts([2, 2]) as hosts:
        begin = time.monotonic()
        done = run(hosts.mpirun(MPIEXEC, 4, FAULT_PROGRAM, "throw", "auto", "60000"))
        seconds = time.monotonic() - begin
    expect(done.returncode == 16, f"exit code {done.returncode}", done)
    expect(seconds < 20, f"it took {seconds:.1f} s", done)
    messages = [line for line in done.stderr.splitlines() if line.startswith("zero:")]
    expect(len(messages) == 1 and "loss is not finite in step 20" in messages[0], "not one message", done)


def calls_that_differ():
    """Rank 1 alone on its host, so that only messages can tell."""
    with Hosts([2, 1]) as hosts:
        done = run(hosts.mpirun(MPIEXEC, 3, FAULT_PROGRAM, "barrier", "auto", "60000", options=BY_NODE))
    expect(done.returncode == 12, f"exit code {done.returncode}", done)
    expect(re.search("rank 0 called reduce_scatter of unit.* rank 1 called barrier", done.stderr), "no such message",
           done)


def a_dead_host():
    """Its ranks are gone without a word, and the launcher tells the others."""
    with Hosts([2, 2]) as hosts:
        job = subprocess.Popen(hosts.mpirun(MPIEXEC, 4, FAULT_PROGRAM, "work", "auto", "60000"),
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        pids = {}
        while len(pids) < 4:
            found = re.match(r"rank (\d+) pid (\d+)", job.stdout.readline())
            expect(found, "the ranks did not start")
            pids[int(found[1])] = int(found[2])
        hosts.stop(1)
        job.stdout.close()
        expect(job.wait(30) != 0, "success in spite of a dead host")
        deadline = time.monotonic() + 5
        while any(os.path.exists(f"/proc/{pid}") for pid in pids.values()):
            expect(time.monotonic() < deadline, "ranks are left")
            time.sleep(0.05)


def training():
    """The losses of a training over two hosts are those of one host, bit by bit."""
    with tempfile.TemporaryDirectory() as folder:
        def losses(start, log):
            program = [TRAIN_GPT[0], "--model", "tiny", "--sequence-length", "16", "--steps", "8", "--threads", "1",
                       "--stage", "3", "--set", "train_micro_batch_size_per_gpu=1", "--set",
                       "zero_core.reduce_group_size=2", "--log-json", f"{folder}/{log}"]
            done = run(start(program))
            expect(done.returncode == 0, f"exit code {done.returncode}", done)
            lines = [json.loads(l) for l in pathlib.Path(folder, log).read_text().splitlines()]
            return [line["loss"] for line in lines if "step" in line]

        with Hosts([2, 2]) as hosts:
            got = losses(lambda program: hosts.mpirun(MPIEXEC, 4, *program), "hosts.jsonl")
        expected = losses(lambda program: [MPIEXEC, "--oversubscribe", "-n", "4", *program], "one.jsonl")
    expect(len(got) == 8 and got == expected, f"losses {got}, on one host {expected}")


def main():
    try:
        with Hosts([1, 1], "1gbit"):
            pass
    except NotAllowed as reason:
        print(f"skipped: no hosts of our own on this machine: {reason}")
        sys.exit(77)
    failed = 0
    for test in (two_hosts, two_hosts_round_robin, groups_beyond_a_host, unequal_hosts, unequal_hosts_round_robin,
                 three_hosts, a_rank_per_host, a_slow_link, an_error_on_the_other_host, calls_that_differ, a_dead_host,
                 *([training] if TRAIN_GPT else [])):
        begin = time.monotonic()
        try:
            result = f"ok {test() or ''}"
        except (AssertionError, subprocess.TimeoutExpired) as error:
            failed += 1
            result = f"FAILED: {error}"
        print(f"{test.__name__}: {result} ({time.monotonic() - begin:.1f} s)", flush=True)
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
