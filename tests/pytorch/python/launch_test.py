"""Tests the ways to start ranks other than mpirun: `launch_test.py MPIEXEC PYTHON PACKAGE CASE`, as python_test.py."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

from python_test import HERE, MPIEXEC, PACKAGE, PYTHON, contains, has

# A launcher's own variables must not reach the jobs that are tested.
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "ACCELERATE_"))
         and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}
ENVIRONMENT = {**CLEAN, "PYTHONPATH": f"{PACKAGE}:{HERE}", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
OMPI = {name: value for name, value in os.environ.items() if name.startswith("OMPI_ALLOW")}
SCRIPT = str(HERE / "launched.py")


def free_port():
    with socket.socket() as listener:
        listener.bind(("", 0))
        return listener.getsockname()[1]


def run(command, environment=(), expect=0, limit=120):
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env={**ENVIRONMENT, **dict(environment)})
    if expect is not None and done.returncode != expect:
        raise SystemExit(f"{command} ended with {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}")
    return done.stdout, done.stderr


def by_torchrun(ranks, *arguments, options=(), script=SCRIPT, **more):
    return run([PYTHON, "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port",
                str(free_port()), *options, script, *arguments], **more)


def by_mpirun(ranks, *arguments, environment=(), **more):
    return run([MPIEXEC, "--oversubscribe", "-n", str(ranks), PYTHON, "-W", "ignore", SCRIPT, *arguments],
               environment={**OMPI, **dict(environment)}, **more)


def variables(rank, size, port, **more):
    """As an operator sets them."""
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), **more}


def start(environment, *arguments):
    return subprocess.Popen([PYTHON, "-W", "ignore", SCRIPT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env={**ENVIRONMENT, **environment})


def outcomes(processes, limit=60):
    """(exit code, stdout, stderr) of each."""
    results = []
    for process in processes:
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            for other in processes:
                other.kill()
            raise SystemExit("a rank hangs: " + process.communicate()[1][-3000:]) from None
        results.append((process.returncode, out, err))
    return results


def expect_codes(results, *codes):
    if [result[0] for result in results] != list(codes):
        raise SystemExit("\n".join(f"{code}: {out[-500:]} {err[-2500:]}" for code, out, err in results)
                         + f"\nexpected the codes {codes}")


def expect_printed_once(results, text):
    count = sum(err.count(text) for _, _, err in results)
    if count != 1:
        raise SystemExit(f"\"{text}\" is said {count} times:\n" + "\n".join(err[-2500:] for _, _, err in results))


def torchrun():
    """The same bits as under mpirun, at all stages."""
    for ranks in (1, 2, 3):
        digests = [re.findall(rf"stage \d on {ranks}: .*", by(ranks, "train")[0]) for by in (by_torchrun, by_mpirun)]
        if len(digests[0]) != 4 or digests[0] != digests[1] or len({line.split(": ")[1] for line in digests[0]}) != 1:
            raise SystemExit(f"torchrun and mpirun: {digests}")


def hosts():
    """Ranks of one host taken for several: gloo carries their messages, and the bits stay."""
    nodes = (("0,1", "gloo over 2 ranks on 2 nodes"), ("0,0,1", "hierarchical over 3 ranks on 2 nodes"))
    for pretended, described in nodes:
        ranks = pretended.count(",") + 1
        outs = [by_torchrun(ranks, "train", environment={"ZERO_TEST_NODES": pretended})[0], by_torchrun(ranks, "train")[0]]
        contains(outs[0], described)
        digests = [re.findall(rf"stage \d on {ranks}: .*", out) for out in outs]
        if len(digests[0]) != 4 or digests[0] != digests[1]:
            raise SystemExit(f"{pretended}: {outs}")
    # The first cause reaches the rank of the other node, and nobody says it twice.
    for how, where, codes, text in (("raises", 1, (1, 1), "KeyError: 'a name that"), ("killed", 1, (17, -9), "rank 1")):
        port = free_port()
        results = outcomes([start(variables(r, 2, port, ZERO_TEST_NODES="0,1"), "fails", how, str(where)) for r in range(2)])
        expect_codes(results, *codes)
        contains("".join(err for _, _, err in results), text)


def launch_faults():
    """Without a launcher that ends the others: each rank ends by itself, with the first cause's code."""
    for how, where, codes, text in (
            ("killed", 1, (17, -9, 17), "died or ended without leaving the job"),
            ("raises", 2, (1, 1, 1), "KeyError: 'a name that"),
            ("refused", 0, (10, 10, 10), "this rank's own refusal")):
        port = free_port()
        results = outcomes([start(variables(r, 3, port), "fails", how, str(where)) for r in range(3)])
        expect_codes(results, *codes)
        expect_printed_once(results, text)
    port = free_port()
    processes = [start(variables(r, 2, port), "fails", "stopped", "1") for r in range(2)]
    silent = outcomes(processes[:1])
    os.kill(processes[1].pid, signal.SIGCONT)
    expect_codes(silent + outcomes(processes[1:]), 18, 18)
    expect_printed_once(silent, "waited 3 s in")
    out, err = by_torchrun(2, "fails", "refused", "1", expect=1)
    contains(err, "exitcode  : 10", "this rank's own refusal")
    out, _ = by_torchrun(2, "restarts", options=("--max-restarts", "1"))
    contains(out, "attempt 1 done")


def launch_start():
    """What may be wrong with where the ranks meet, by name and within the start limit."""
    limit = {"ZERO_START_LIMIT": "4"}
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        begin = time.monotonic()
        results = outcomes([start(variables(r, 2, port, **limit), "arrives") for r in range(2)])
        if time.monotonic() - begin > 30:
            raise SystemExit("the start limit of 4 s took half a minute")
        expect_codes(results, 10, 18)
        contains(results[0][2], f"MASTER_PORT {port} cannot be opened on rank 0's host", "another job")
        contains(results[1][2], f"MASTER_PORT {port}", "within 4 s")
    # Nobody is there; a rank is missing; a rank comes twice, as two jobs at one port make it.
    port = free_port()
    results = outcomes([start(variables(1, 2, port, **limit), "arrives")])
    expect_codes(results, 18)
    contains(results[0][2], "did not reach MASTER_ADDR 127.0.0.1, MASTER_PORT", "within 4 s")
    port = free_port()
    results = outcomes([start(variables(r, 3, port, **limit), "arrives") for r in (0, 2)])
    expect_codes(results, 18, 18)
    expect_printed_once(results, "of 3 ranks, rank 1 did not come to MASTER_ADDR")
    port = free_port()
    results = outcomes([start(variables(r, 3, port, **limit), "arrives") for r in (0, 1, 1)])
    codes = sorted(result[0] for result in results)
    if 11 not in codes or 0 in codes:
        raise SystemExit(str(results))
    contains("".join(err for _, _, err in results), "two jobs share this address and port")
    for wrong, code, text in (({"MASTER_PORT": ""}, 2, "MASTER_PORT is not set"), ({"MASTER_PORT": "x"}, 10, "MASTER_PORT is 'x'"),
                              ({"RANK": "2"}, 2, "ranks count from 0")):
        results = outcomes([start({**variables(1, 2, 1), **wrong}, "arrives")])
        if results[0][0] == 0:
            raise SystemExit(f"a training of one rank began under {wrong}")
        contains(results[0][2], text)
    results = outcomes([start({"SLURM_STEP_NUM_TASKS": "4"}, "arrives")])
    contains(results[0][2], "was started by srun, as one of 4")


def launch_groups():
    """torch.distributed, made by either, and both environments at once."""
    for order in ("ours", "script_first", "script_later"):
        if by_torchrun(2, "groups", order)[0].count("group of 2") != 2:
            raise SystemExit(order)
    port = free_port()
    for order in ("script_first", "script_later"):  # rank 0 hosts the store itself
        results = outcomes([start(variables(r, 2, port), "groups", order) for r in range(2)])
        expect_codes(results, 0, 0)
    contains(by_torchrun(1, "groups", "ours")[0], "group of 1")
    both = {"TORCHELASTIC_RUN_ID": "left", "RANK": "0", "WORLD_SIZE": "1"}
    out, err = by_mpirun(2, "arrives", environment=both)
    contains(out, "arrived 0 of 2", "arrived 1 of 2")
    if err.count("the ranks are MPI's") != 1:
        raise SystemExit(err)
    contains(by_mpirun(1, "arrives", environment={**both, "WORLD_SIZE": "2"}, expect=None)[1],
             "MPI's launcher says 1 ranks and torchrun, which it started, 2")


def installed_package(folder):
    """As pip leaves it: Python reads zerocore.pth of a site folder."""
    subprocess.run(["cmake", "--install", str(pathlib.Path(PACKAGE).parent), "--component", "python", "--prefix", folder],
                   check=True, capture_output=True)
    pathlib.Path(folder, "sitecustomize.py").write_text(f"import site\nsite.addsitedir({str(folder)!r})\n")
    return {"PYTHONPATH": f"{folder}:{HERE}"}


def launch_as_deepspeed():
    """ZEROCORE_AS_DEEPSPEED=1: scripts that import deepspeed, as they are, under launchers that do not know of zerocore."""
    with tempfile.TemporaryDirectory() as folder:
        package = installed_package(folder)
        asked = {**package, "ZEROCORE_AS_DEEPSPEED": "1"}
        script = str(HERE / "cifar10_deepspeed.py")
        out, _ = by_torchrun(2, "--deepspeed", "--dtype", "fp32", "--stage", "2", script=script, environment=asked)
        if out.count("Finished Training") != 2:
            raise SystemExit(out)
        out, _ = run([PYTHON, "-W", "ignore", "-c", "from deepspeed.launcher.runner import main; main()", "--num_gpus", "2",
                      "--master_port", str(free_port()), script, "--deepspeed", "--dtype", "fp32", "--stage", "3"],
                     environment=asked)
        if out.count("Finished Training") != 2:
            raise SystemExit(out)
        for environment in ({}, {"ZEROCORE_AS_DEEPSPEED": "0"}):
            _, err = run([PYTHON, "-c", "import deepspeed"], environment={**package, **environment}, expect=None)
            if not has("deepspeed"):
                contains(err, "No module named 'deepspeed'")
        _, err = run([PYTHON, "-X", "importtime", "-c", "pass"], environment=asked)
        if "torch" in err:
            raise SystemExit("Python's start imports torch")
        out, _ = by_torchrun(2, script=str(HERE / "installing_deepspeed.py"), environment=package)
        contains(out, "local rank 0 of 2", "local rank 1 of 2")


def launch_accelerate():
    """accelerate launch with the YAML files of DeepSpeed, on CPU ranks: stages are equal."""
    if not has("accelerate"):
        print("SKIPPED: accelerate is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        asked = {**installed_package(folder), "ZEROCORE_AS_DEEPSPEED": "1"}
        first = None
        for stage in (2, 3):
            out, _ = run([PYTHON, "-W", "ignore", "-m", "accelerate.commands.launch", "--config_file",
                          str(HERE / f"accelerate_zero{stage}.yaml"), "--main_process_port", str(free_port()),
                          str(HERE / "accelerate_launched.py")], environment=asked)
            losses = re.findall(r"rank \d of 2: .*", out)
            first = first or sorted(losses)
            if len(losses) != 2 or sorted(losses) != first:
                raise SystemExit(f"stage {stage}: {out}, not {first}")


if __name__ == "__main__":
    globals()[sys.argv[4]]()
