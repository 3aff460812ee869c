"""Jobs over several hosts, in reality: bits, bytes, time over a slow link, and the end of a job that fails.

usage: multi_node.py MPIEXEC NODE_PROGRAM FAULT_PROGRAM [TRAIN_GPT ZERO KILL_PROGRAM]

Exits with 77 if this machine cannot have such hosts (no root, no namespaces).
"""

import concurrent.futures
import json
import os
import pathlib
import re
import signal
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
    """Returns the number of items that a node sends per slice: one sum for a reduce group that is entirely on it,
    otherwise one value per rank."""
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


def check_bits_and_bytes(got, nodes, group):
    """Compares with the same ranks on one host, and with the arithmetic of the scheme."""
    expected = on_one_host(len(nodes), *arguments(group))
    several = len(set(nodes)) < len(nodes)
    expect(expected["transport"] == "shm" and got["transport"] == ("hierarchical" if several else "mpi"),
           f"over {got['transport']}, and {expected['transport']} on one host")
    expect(got["nodes"] == ",".join(map(str, nodes)), f"the ranks see other nodes: {got['nodes']}")
    expect(got["hash"] == expected["hash"], f"other bits than on one host: {nodes}")
    between = bytes_between(nodes, group, COUNT, STEPS)
    expect(int(got["between"]) == between, f"{got['between']} bytes between hosts, not {between}")
    return f"nodes {got['nodes']}: {between} bytes between them, {got['inside']} inside"


def pretended():
    """One host divided into several, for a machine that has no others."""
    for nodes, group in (([0, 0, 1, 1], 2), ([0, 1, 0, 1], 2), ([0, 0, 0, 1], 3), ([0, 1, 1, 1, 2], 2), ([0, 1, 2], 1)):
        listed = ",".join(map(str, nodes))
        got = on_one_host(len(nodes), *arguments(group), environment={"ZERO_TEST_NODES": listed})
        check_bits_and_bytes(got, nodes, group)


def bits_and_bytes(slots, group, nodes, options=()):
    with Hosts(slots) as hosts:
        got = measured(hosts.mpirun(MPIEXEC, len(nodes), *arguments(group), options=options))
    return check_bits_and_bytes(got, nodes, group)


def two_hosts():
    return bits_and_bytes([2, 2], 2, [0, 0, 1, 1])


def two_hosts_round_robin():
    return bits_and_bytes([2, 2], 2, [0, 1, 0, 1], BY_NODE)


def groups_beyond_a_host():
    return bits_and_bytes([2, 2], 4, [0, 0, 1, 1])


def unequal_hosts():
    return bits_and_bytes([3, 1], 3, [0, 0, 0, 1])


def unequal_hosts_round_robin():
    return bits_and_bytes([1, 3], 2, [0, 1, 1, 1], BY_NODE)


def three_hosts():
    return bits_and_bytes([2, 1, 2], 2, [0, 0, 1, 2, 2])


def a_rank_per_host():
    return bits_and_bytes([1, 1, 1], 1, [0, 1, 2])


def a_slow_link():
    """Measured in turns; the link takes most of the time."""
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
    """Rank 1 is alone on its host, so that the difference can be found only through messages."""
    with Hosts([2, 1]) as hosts:
        done = run(hosts.mpirun(MPIEXEC, 3, FAULT_PROGRAM, "barrier", "auto", "60000", options=BY_NODE))
    expect(done.returncode == 12, f"exit code {done.returncode}", done)
    expect(re.search("rank 0 called reduce_scatter of unit.* rank 1 called barrier", done.stderr), "no such message",
           done)


def a_dead_host():
    """The host's ranks end without a message, and the launcher ends the others."""
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
        expect(job.wait(30) != 0, "success in spite of a dead host")
        job.stdout.close()
        deadline = time.monotonic() + 5
        while any(os.path.exists(f"/proc/{pid}") for pid in pids.values()):
            expect(time.monotonic() < deadline, "ranks are left")
            time.sleep(0.05)


def cut_link(slots, index, sign, *program):
    """Cuts the link of a host. Its ranks wait in vain, like the others; returns the one line that gives the reason, and
    the seconds."""
    with Hosts(slots) as hosts, tempfile.TemporaryFile("w+") as errors:
        job = subprocess.Popen(hosts.zero_run(TRAIN_GPT[1], MPIEXEC, *program), stdout=subprocess.PIPE, stderr=errors,
                               text=True, env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                                               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        for line in job.stdout:
            if sign in line:
                break
        hosts.cut(index)
        begin = time.monotonic()
        try:
            code = job.wait(60)
        finally:
            job.kill()
            job.stdout.close()
        seconds = time.monotonic() - begin
        # The launcher cannot reach processes across the cut link, but ranks end by themselves.
        deadline = time.monotonic() + 15
        while any(left := [hosts.programs(i, program[0]) if i == index else hosts.processes(i)
                           for i in range(1, len(slots))]):
            expect(time.monotonic() < deadline, f"processes are left on the other hosts: {left}")
            time.sleep(0.1)
        errors.seek(0)
        text = errors.read()
    expect(code == 18, f"exit code {code}\n{text}")
    expect(seconds < 30, f"it took {seconds:.1f} s\n{text}")  # the limit of at most 5 s, 15 s, and a margin
    causes = [line for line in text.splitlines() if line.startswith("zero: rank ")]
    expect(len(causes) == 1, f"not one line says why\n{text}")
    return causes[0], f"{seconds:.1f} s"


def a_cut_link():
    """Each of the two ranks that still reach the launcher has a first cause; one is shown."""
    cause, seconds = cut_link([1, 1, 1], 1, "step 3/", TRAIN_GPT[0], "--model", "tiny", "--sequence-length", "16",
                              "--steps", "100000000", "--threads", "1", "--set", "train_micro_batch_size_per_gpu=1",
                              "--set", "steps_per_print=1", "--set", "zero_core.time_limit_seconds=2")
    expect(re.search(r"rank [02] waited 2 s in .*nothing came from rank 1", cause), cause)
    return seconds


def a_cut_link_in_a_save():
    """The rank across the link is in a call that does not return."""
    with tempfile.TemporaryDirectory() as folder:
        cause, seconds = cut_link([1, 1], 1, "hangs", TRAIN_GPT[2], f"{folder}/root", "K1", "hang")
    expect(re.search(r"rank 0 waited 5 s in .* of the writing of new .*nothing came from rank 1", cause), cause)
    return seconds


IN_GROUPS = ("zero_core.shard_group_size=2",)
ZERO_PLUS_PLUS = ("zero_core.wire.gather=int8", "zero_optimization.zero_quantized_gradients=true",
                  "zero_optimization.zero_hpz_partition_size=2")
STRATEGIES = {
    "stage 3": (),
    "HYBRID_SHARD": IN_GROUPS,
    "HFSDP": (*IN_GROUPS, "zero_core.optimizer_over_all_ranks=true"),
    "hpZ": ("zero_optimization.zero_hpz_partition_size=2",),
    "ZeRO++": ZERO_PLUS_PLUS,
    "ZeRO++, plain inside hosts": (*ZERO_PLUS_PLUS, "zero_core.wire.gather_inside=none",
                                   "zero_core.wire.reduce_inside=none"),
}
# The model consists mostly of equal blocks, so that parameters that are not encoded hardly count.
BLOCKS = {"model_type": "gpt2", "vocab_size": 256, "n_positions": 16, "n_embd": 128, "n_layer": 48, "n_head": 4}
STEPS_TRAINED = 5
IN_HOSTS_FIRST = ("train_micro_batch_size_per_gpu=1", "bf16.enabled=true", "zero_core.reduce_group_size=2")
IN_ANY_RANKS = ("train_micro_batch_size_per_gpu=1", "bf16.enabled=true", "train_batch_size=7",
                "zero_core.rank_independent=true")


def losses(folder, start, settings, steps=STEPS_TRAINED):
    log = pathlib.Path(folder, "log.jsonl")
    log.unlink(missing_ok=True)
    program = [TRAIN_GPT[0], "--model", f"{folder}/config.json", "--sequence-length", "16", "--steps",
               str(steps), "--threads", "1", "--stage", "3", "--log-json", str(log)]
    for setting in settings:
        program += ["--set", setting]
    done = run(start(program))
    expect(done.returncode == 0, f"exit code {done.returncode}", done)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line["loss"] for line in lines if "step" in line]


def training():
    """The losses of a training run over two hosts are bitwise identical to those of one host, with every strategy; also
    checks the bytes that the strategies send over the link in a step."""
    sent = {}
    # Strategies that send the same formats have the same bits, so one run on one host is enough for them.
    expected = {}
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "config.json").write_text(json.dumps(BLOCKS))
        with Hosts([2, 2]) as hosts:
            for name, own in STRATEGIES.items():
                settings = (*IN_HOSTS_FIRST, *own)

                def on_hosts(program):
                    return hosts.mpirun(MPIEXEC, 4, *program)

                begin = hosts.bytes_sent()
                losses(folder, on_hosts, settings, steps=1)
                after_one = hosts.bytes_sent()
                got = losses(folder, on_hosts, settings)
                sent[name] = hosts.bytes_sent() - after_one - (after_one - begin)
                formats = name if name.startswith("ZeRO++") else "plain"
                if formats not in expected:
                    expected[formats] = losses(
                        folder, lambda program: [MPIEXEC, "--oversubscribe", "-n", "4", *program], settings)
                expect(len(got) == STEPS_TRAINED and got == expected[formats],
                       f"{name}: losses {got}, on one host {expected[formats]}")
    shares = {name: count / sent["stage 3"] for name, count in sent.items()}
    expect(shares["ZeRO++"] < 0.27 and shares["HFSDP"] < 0.7, f"shares of stage 3's bytes: {shares}")
    return ", ".join(f"{name} {share:.3f}" for name, share in shares.items())


def other_numbers_of_ranks():
    """The losses of training runs over two hosts are bitwise identical to those of one rank."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "config.json").write_text(json.dumps({**BLOCKS, "n_layer": 4}))
        expected = losses(folder, lambda program: [MPIEXEC, "-n", "1", *program], IN_ANY_RANKS)
        for slots in ([2, 2], [2, 1], [1, 1]):
            with Hosts(slots) as hosts:
                got = losses(folder, lambda program: hosts.mpirun(MPIEXEC, sum(slots), *program), IN_ANY_RANKS)
            expect(len(got) == STEPS_TRAINED and got == expected,
                   f"slots {slots}: losses {got}, on one rank {expected}")


def passes(test):
    begin = time.monotonic()
    try:
        result = f"ok {test() or ''}"
    except (AssertionError, subprocess.TimeoutExpired) as error:
        result = f"FAILED: {error}"
    print(f"{test.__name__}: {result} ({time.monotonic() - begin:.1f} s)", flush=True)
    return result.startswith("ok")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the hosts are removed
    try:
        with Hosts([1, 1], "1gbit"):
            pass
    except NotAllowed as reason:
        good = passes(pretended)
        print(f"skipped: no hosts of our own on this machine: {reason}")
        sys.exit(77 if good else 1)
    good = passes(a_slow_link)  # alone, since it measures
    tests = [*([training, a_cut_link, a_cut_link_in_a_save, other_numbers_of_ranks] if TRAIN_GPT else []), two_hosts,
             two_hosts_round_robin, groups_beyond_a_host, unequal_hosts, unequal_hosts_round_robin, three_hosts,
             a_rank_per_host, an_error_on_the_other_host, calls_that_differ, a_dead_host]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        good = all([good, *pool.map(passes, tests)])
    sys.exit(not good)


if __name__ == "__main__":
    main()
