"""Tests the ways to start ranks other than mpirun: `launch_test.py MPIEXEC PYTHON PACKAGE CASE`, as python_test.py."""

import importlib.util
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile

import warm
from python_test import HERE, MPIEXEC, PACKAGE, PYTHON, contains, has, installed_package

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


def run(command, environment=(), expect=0, limit=400):
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env={**ENVIRONMENT, **dict(environment)})
    if expect is not None and done.returncode != expect:
        raise SystemExit(f"{command} ended with {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}")
    return done.stdout, done.stderr


def by_torchrun(ranks, *arguments, options=(), script=SCRIPT, **more):
    return run([PYTHON, "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port",
                str(free_port()), *options, script, *arguments], **more)


def by_torchrun_warm(ranks, *arguments, **more):
    """The same with torchrun and its ranks forked (warm.py), for cases of what ranks do afterwards."""
    python = warm.command(PYTHON, ENVIRONMENT)
    return run([*python, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", str(free_port()),
                "--no-python", *python, SCRIPT, *arguments], **more)


def by_mpirun(ranks, *arguments, script=SCRIPT, environment=(), python=(PYTHON, "-W", "ignore"), **more):
    return run([MPIEXEC, "--oversubscribe", "-n", str(ranks), *python, script, *arguments],
               environment={**OMPI, **dict(environment)}, **more)


def by_mpirun_warm(ranks, *arguments, **more):
    return by_mpirun(ranks, *arguments, python=warm.command(PYTHON, ENVIRONMENT), **more)


def variables(rank, size, port, **more):
    """Sets variables as an operator does."""
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), **more}


def start(environment, *arguments, python=(PYTHON, "-W", "ignore")):
    return subprocess.Popen([*python, SCRIPT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**ENVIRONMENT, **environment})


def start_warm(environment, *arguments):
    return start(environment, *arguments, python=warm.command(PYTHON, ENVIRONMENT))


def outcomes(processes, limit=300):
    """Returns (exit code, stdout, stderr) of each process."""
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


def digests_of(ranks, out):
    found = re.findall(rf"stage \d on {ranks}: .*", out)
    if len(found) != 4 or len({line.split(": ")[1] for line in found}) != 1:
        raise SystemExit(f"not four stages of equal bits: {out}")
    return found


def torchrun():
    """The same bits as under mpirun, at all stages; also if gloo carries the messages between simulated nodes."""
    expect_equal_digests(2, ("0,1",), by_torchrun)
    expect_equal_digests(4, ())


def torchrun_sizes():
    expect_equal_digests(1, ())
    expect_equal_digests(3, ("0,0,1", "0,1,0"))
    expect_equal_digests(4, ("0,0,1,1",))


def expect_equal_digests(ranks, placements, start_ranks=by_torchrun_warm):
    alone = start_ranks(ranks, "train")[0]
    contains(alone, f"{'shm' if ranks > 1 else 'self'} over {ranks} rank")
    compare_with_mpirun(ranks, alone)
    for nodes in placements:
        # Ranks of a node are summed first, so bits may depend on the placement.
        environment = {"ZERO_TEST_NODES": nodes}
        out = by_torchrun_warm(ranks, "train", environment=environment)[0]
        contains(out, f"{'gloo' if ranks == 2 else 'hierarchical'} over {ranks} ranks on 2 nodes")
        compare_with_mpirun(ranks, out, environment=environment)


def compare_with_mpirun(ranks, out, environment=()):
    by_mpi = digests_of(ranks, by_mpirun_warm(ranks, "train", environment=environment)[0])
    if digests_of(ranks, out) != by_mpi:
        raise SystemExit(f"mpirun: {by_mpi}, torchrun: {out}")


def launch_checkpoints():
    """A job that one launcher's ranks have saved goes on under another one, at another stage, with the same bits."""
    for save, resume, stages in ((by_torchrun_warm, by_mpirun_warm, "23"), (by_mpirun_warm, by_torchrun_warm, "30")):
        with tempfile.TemporaryDirectory() as folder:
            saved, resumed = (digests_in(start_ranks(2, case, folder, stage))
                              for start_ranks, case, stage in zip((save, resume), ("saves", "resumes"), stages))
            if resumed != saved:
                raise SystemExit(f"resumed with {resumed}, saved with {saved}")
            if digests_in(resume(3, "resumes", folder, stages[1]))[0] != saved[0]:
                raise SystemExit("three ranks have loaded other values")


def digests_in(outputs):
    """When the checkpoint was made or loaded, and at the end."""
    found = re.findall(r"saved (\S+), ended (\S+)", outputs[0])
    if len(found) != 1 or found[0][0] == found[0][1]:
        raise SystemExit(outputs[0] + outputs[1])
    return found[0]


def gloo_conformance(placements=("0,0,1",)):
    """The conformance suite of all host transports over gloo, for ranks that share nodes or have one each."""
    modules = str(pathlib.Path(PACKAGE).parent / "python_tests")
    for nodes in placements:
        port, ranks = free_port(), nodes.count(",") + 1
        transport = "gloo" if len(set(nodes.split(","))) == ranks else "hierarchical"
        paths = {"PYTHONPATH": f"{PACKAGE}:{HERE}:{modules}", "ZERO_TEST_NODES": nodes}
        results = outcomes([start_warm(variables(r, ranks, port, **paths), "conforms", transport) for r in range(ranks)])
        expect_codes(results, *[0] * ranks)
        contains(results[0][1], f"cases over {transport} over {ranks} ranks", "verified")


def gloo_placements():
    gloo_conformance(("0,1", "0,1,2", "0,1,0", "0,0,1,1", "0,1,0,2"))


def launch_doctor():
    """The sentences of `zero doctor`, from ranks of Python under each launcher."""
    zero = str(pathlib.Path(PACKAGE).parent / "bin/zero")
    alone = json.loads(run([zero, "doctor", "--json"])[0])
    command = ("-m", "zerocore.doctor", "--json")
    torchrun = (PYTHON, "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node", "2")
    for ranks, transport, start_ranks in (
            (1, None, (PYTHON,)), (2, "shm", (*torchrun, "--master-port", str(free_port()))),
            (2, "shm", (MPIEXEC, "--oversubscribe", "-n", "2", PYTHON))):
        report = json.loads(run([*start_ranks, *command], environment=OMPI)[0])
        if (report["ranks"], report["transport"], len(report["links"])) != (ranks, transport, ranks - 1):
            raise SystemExit(str(report))
        host = report["hosts"][0]
        if sentences_of(host) != sentences_of(alone["hosts"][0]):
            raise SystemExit(f"{sentences_of(host)}, not those of zero doctor: {sentences_of(alone['hosts'][0])}")
        contains(host["program"], "Python", "torch")
        contains(" ".join(host["loaded"]), "libtorch_cpu.so")
    contains(run([PYTHON, *command[:2]])[0], "of these will make some runs fail")
    # Hosts that are pretended, each of them with each; the last one has two ranks.
    for start_ranks, nodes, hosts, links in ((by_torchrun_warm, "0,1,2,2", 3, 4), (by_mpirun_warm, "", 1, 1)):
        ranks = 4 if nodes else 2
        out = start_ranks(ranks, "examined", environment={"ZERO_TEST_NODES": nodes})[0]
        found = re.findall(rf"examined {hosts} hosts, {links} links: \w+", out)
        if len(found) != ranks or len(set(found)) != 1:
            raise SystemExit(out)


def sentences_of(host):
    """Those that depend on the host alone: memory changes between two readings, and software is that of the program."""
    return [(finding["text"], finding["level"], finding["advice"]) for finding in host["findings"]
            if finding["topic"] in ("cores", "limits", "network")]


def launch_hosts():
    """torchrun on two hosts, simulated by network namespaces: the bits of one host, and the end of a job whose link
    is cut."""
    sys.path.insert(0, str(HERE.parents[1] / "faults"))
    from multi_node_hosts import Hosts, NotAllowed

    def start_torchrun(hosts, index, *script):
        return subprocess.Popen(
            ["ip", "netns", "exec", hosts.spaces[index + 1], "unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"',
             hosts.name(index), PYTHON, "-u", "-W", "ignore", "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank",
             str(index), "--nproc-per-node", "1", "--master-addr", hosts.address(0), "--master-port", "29500", *script],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**ENVIRONMENT, "GLOO_SOCKET_IFNAME": "net0"})

    try:
        with Hosts([1, 1]) as hosts:
            results = outcomes([start_torchrun(hosts, index, SCRIPT, "train") for index in range(2)])
            expect_codes(results, 0, 0)
            contains(results[0][1], "gloo over 2 ranks on 2 nodes")
            if digests_of(2, results[0][1]) != digests_of(2, by_mpirun(2, "train")[0]):
                raise SystemExit("other bits than on one host")
            results = outcomes([start_torchrun(hosts, index, "-m", "zerocore.doctor", "--json") for index in range(2)])
            expect_codes(results, 0, 0)
            report = json.loads(results[0][1])
            if [host["host"] for host in report["hosts"]] != [hosts.name(0), hosts.name(1)] or [
                    (link["ranks"], link["transport"]) for link in report["links"]] != [([0, 1], "gloo")]:
                raise SystemExit(str(report))
            jobs = [start_torchrun(hosts, index, SCRIPT, "fails", "by", "-1") for index in range(2)]
            while jobs[0].stdout.readline().strip() != "at work":
                if jobs[0].poll() is not None:
                    raise SystemExit(jobs[0].stderr.read())
            hosts.cut(1)
            results = outcomes(jobs)
            for _, _, err in results:
                contains(err, "exitcode  : 18", "waited 3 s in")
    except NotAllowed as reason:
        print(f"SKIPPED: no hosts on this machine: {reason}")


def launch_faults():
    """Without a launcher that ends the others, each rank ends by itself, with the code of the first cause, and one
    prints it."""
    killed, raised = "died or ended without leaving the job", "KeyError: 'a name that"
    # The last two ranks are on nodes of their own.
    for how, where, nodes, codes, text in (
            ("killed", 1, "", (17, -9, 17), killed), ("raises", 1, "", (1, 1), raised),
            ("raises", 1, "0,1", (1, 1), raised), ("killed", 1, "0,1", (17, -9), "the connection to a rank of another host")):
        port, ranks = free_port(), len(codes)
        results = outcomes([start_warm(variables(r, ranks, port, ZERO_TEST_NODES=nodes), "fails", how, str(where))
                            for r in range(ranks)])
        expect_codes(results, *codes)
        expect_printed_once(results, text)
    port = free_port()
    processes = [start(variables(r, 2, port), "fails", "stopped", "1") for r in range(2)]
    silent = outcomes(processes[:1])
    os.kill(processes[1].pid, signal.SIGCONT)
    expect_codes(silent + outcomes(processes[1:]), 18, 18)
    expect_printed_once(silent, "waited 3 s in")
    # A worker of multiprocessing has no exception hook; its parent prints the error that came first.
    _, err = run([PYTHON, "-W", "ignore", SCRIPT, "spawns", str(free_port())], expect=1)
    contains(err, "Process 1 terminated with the following error", "ValueError: a bug of the second worker")
    if "disagree" in err or "PeerFailed" in err:
        raise SystemExit(f"a false cause: {err}")
    out, err = by_torchrun(2, "restarts", options=("--max-restarts", "1"))
    contains(out, "attempt 1 done")
    contains(err, "exitcode: 10", "zerocore.ConfigError: the first attempt ends here")


def launch_start():
    """Each error in the address at which ranks meet is named, within the start limit."""
    limit = {"ZERO_START_LIMIT": "15"}
    taken = socket.socket()
    taken.bind(("", 0))
    taken.listen()
    stale, nobody, missing, twice = taken.getsockname()[1], free_port(), free_port(), free_port()
    jobs = {name: [start_warm(variables(rank, size, port, **limit), "arrives") for rank in ranks]
            for name, ranks, size, port in (("stale", (0, 1), 2, stale), ("nobody", (1,), 2, nobody),
                                            ("missing", (0, 2), 3, missing), ("twice", (0, 1, 1), 3, twice))}
    wrong = (({"MASTER_PORT": ""}, "MASTER_PORT is not set"), ({"MASTER_PORT": "x"}, "MASTER_PORT is 'x'"),
             ({"RANK": "2"}, "ranks count from 0"))
    refused = [start_warm({**variables(1, 2, 1), **values}, "arrives") for values, _ in wrong]
    refused.append(start_warm({"SLURM_STEP_NUM_TASKS": "4"}, "arrives"))
    results = {name: outcomes(processes) for name, processes in jobs.items()}
    taken.close()
    expect_codes(results["stale"], 10, 18)
    contains(results["stale"][0][2], f"MASTER_PORT {stale} cannot be opened on rank 0's host", "another job")
    contains(results["stale"][1][2], f"MASTER_PORT {stale}", "within 15 s")
    expect_codes(results["nobody"], 18)
    contains(results["nobody"][0][2], f"did not reach MASTER_ADDR 127.0.0.1, MASTER_PORT {nobody} within 15 s")
    expect_codes(results["missing"], 18, 18)
    expect_printed_once(results["missing"], "of 3 ranks, rank 1 did not come to MASTER_ADDR")
    # Two jobs at one port.
    codes = sorted(result[0] for result in results["twice"])
    if 11 not in codes or 0 in codes:
        raise SystemExit(str(results["twice"]))
    contains("".join(err for _, _, err in results["twice"]), "two jobs share this address and port")
    for (code, _, err), text in zip(outcomes(refused), [*(text for _, text in wrong), "was started by srun, as one of 4"]):
        contains(err, text)
        if code == 0:
            raise SystemExit(f"a training of one rank began in spite of: {text}")


def launch_groups():
    """torch.distributed, initialized by the script or by zerocore, and the variables of both launchers at once."""
    for order in ("script_first", "script_later"):  # rank 0 hosts the store itself
        port = free_port()
        results = outcomes([start_warm(variables(r, 2, port), "groups", order) for r in range(2)])
        expect_codes(results, 0, 0)
    if by_torchrun(2, "groups", "script_later")[0].count("group of 2") != 2:
        raise SystemExit("torchrun's agent hosts the store, and the script's group is not of two")
    contains(by_torchrun_warm(1, "groups", "ours")[0], "group of 1")
    contains(run([PYTHON, "-W", "ignore", SCRIPT, "arrives"])[0], "arrived 0 of 1 without MPI")
    both = {"TORCHELASTIC_RUN_ID": "left", "RANK": "0", "WORLD_SIZE": "1"}
    out, err = by_mpirun(2, "arrives", environment=both)
    contains(out, "arrived 0 of 2 with MPI", "arrived 1 of 2 with MPI")
    if err.count("the ranks are MPI's") != 1:
        raise SystemExit(err)
    contains(by_mpirun(1, "arrives", environment={**both, "WORLD_SIZE": "2"}, expect=None)[1],
             "MPI's launcher says 1 ranks and torchrun, which it started, 2")


def launch_mpi():
    """Under the mpirun of other MPIs than the build's: the ranks use the launcher's library, with the same bits."""
    launchers = {name: pathlib.Path.home() / ".cache/zerocore" / name for name in ("openmpi", "mpich")}
    launchers = {name: folder for name, folder in launchers.items()
                 if (folder / "bin/mpirun").exists() and pathlib.Path(PACKAGE, f"zerocore/binaries/libzerocore_{name}.so").exists()}
    if not launchers:
        print("SKIPPED: Open MPI 5 and MPICH are not installed (scripts/install_dependencies.sh --torch)")
        return
    expected = digests_of(2, by_mpirun_warm(2, "train")[0])
    for name, folder in launchers.items():
        oversubscribe = ["--oversubscribe"] if name == "openmpi" else []
        out, _ = run([str(folder / "bin/mpirun"), *oversubscribe, "-n", "2", PYTHON, "-W", "ignore", SCRIPT, "train"],
                     environment={**OMPI, "ZERO_TRANSPORT": "mpi"})
        contains(out, "mpi over 2 ranks on 1 node", f"with {folder}/lib/libmpi.so")
        if digests_of(2, out) != expected:
            raise SystemExit(f"{folder}: {out}, not {expected}")
    if "mpich" in launchers:
        # torchrun does not pass the connection to mpiexec on.
        _, err = run([str(launchers["mpich"] / "bin/mpiexec"), "-n", "1", PYTHON, "-W", "ignore", "-m", "torch.distributed.run",
                      "--nproc-per-node", "1", "--master-port", str(free_port()), SCRIPT, "arrives"], expect=1)
        contains(err, "PMI_FD is", "with mpiexec alone, or with torchrun alone", "exitcode  : 11")


def launch_other_mpi():
    """If MPI does not see the launcher's ranks, or the package has no plugin for the launcher, no rank trains alone."""
    step = {**OMPI, "SLURM_STEP_ID": "1", "PMI_SIZE": "2", "PMI_RANK": "0"}
    contains(run([PYTHON, "-W", "ignore", SCRIPT, "arrives"], environment=step, expect=11)[1], "PMI_SIZE says 2 ranks, but MPI sees 1",
             "torchrun")
    with tempfile.TemporaryDirectory() as folder:
        package = installed_package(folder)
        pathlib.Path(folder, "zerocore/binaries/libzerocore_mpich.so").unlink(missing_ok=True)
        # PyTorch's variables do not help: the ranks are the launcher's.
        contains(run([PYTHON, "-W", "ignore", SCRIPT, "arrives"], expect=11,
                     environment={**package, **variables(0, 1, free_port()), "PMI_SIZE": "2", "PMI_RANK": "0"})[1],
                 "PMI_SIZE is set), and MPI cannot be loaded: this package was built without the headers of MPICH", "torchrun")


def launch_variables():
    """The variables of each launcher decide whose ranks the processes are."""
    torchrun = {**variables(3, 4, 1), "TORCHELASTIC_RUN_ID": "none"}
    step = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2"}
    by_pmix, by_pmi2 = {**step, "PMIX_RANK": "2"}, {**step, "PMI_SIZE": "4", "PMI_RANK": "2"}
    open_mpi, hydra = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "1"}, {"PMI_SIZE": "4", "PMI_RANK": "1"}
    cases = (({}, "False 0"), (torchrun, "False 3"), (by_pmix, "True 2"), (by_pmi2, "True 2"), (step, "False 0"),
             (open_mpi, "True 1"), (hydra, "True 1"), ({**step, **open_mpi}, "True 1"), ({**torchrun, **open_mpi}, "True 1"),
             ({**torchrun, **by_pmix}, "False 3"), ({**torchrun, **by_pmi2}, "False 3"), ({**torchrun, **step}, "False 3"))
    script = """import json, os, sys
from zerocore import launch
slow = {"torch._dynamo", "torch._inductor", "triton", "transformers", "accelerate"} & sys.modules.keys()
assert not slow, f"import zerocore imports {slow}"
before = dict(os.environ)
for variables in json.loads(sys.argv[1]):
    os.environ.update(variables)
    print(launch.by_mpi(), launch.launched_rank())
    for name in variables:
        del os.environ[name]
    os.environ.update(before)
"""
    out, _ = run([PYTHON, "-W", "ignore", "-c", script, json.dumps([case for case, _ in cases])])
    wrong = [(case, found) for (case, expected), found in zip(cases, out.splitlines(), strict=True) if found != expected]
    if wrong:
        raise SystemExit(str(wrong))


def found():
    """python -m zerocore: a line for each thing, and the reason where there is none."""
    lines = found_lines({})
    torch = subprocess.run([PYTHON, "-c", "import torch; print(torch.__version__, torch.__path__[0], sep=', ')"],
                           capture_output=True, text=True)
    contains(lines["torch"], torch.stdout.strip())
    contains(lines["zerocore"], f"{PACKAGE}/zerocore")
    contains(lines["CUDA"], "in this build")
    nccl = subprocess.run([PYTHON, "-c", "import torch; print(*torch.cuda.nccl.version(), sep='.')"], capture_output=True, text=True)
    contains(lines["NCCL"], f"{nccl.stdout.strip()}, /" if nccl.returncode == 0 else "not found")
    texts = [lines[name] for name in ("Open MPI", "MPICH")]
    libraries = [text.split(", ")[1] for text in texts if not text.startswith("not found")]
    if not libraries or not all(os.path.exists(library) for library in libraries):
        raise SystemExit(str(texts))
    contains(found_lines({"ZERO_SIMD": "scalar"})["SIMD"], "scalar")
    size = os.statvfs("/dev/shm")
    contains(lines["shared memory"], f"of {size.f_blocks * size.f_frsize / 2**30:.1f} GiB free")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("libmpi.so.40", "libmpi.so.12", "libmpich.so.12"):
            pathlib.Path(folder, name).touch()
        lines = found_lines({"LD_LIBRARY_PATH": folder, "PATH": os.path.dirname(PYTHON)})
        for name in ("Open MPI", "MPICH"):
            contains(lines[name], "not found", "torchrun can")
        contains(lines["Open MPI"] + lines["MPICH"], "file too short")


def found_lines(environment):
    done = subprocess.run([PYTHON, "-W", "ignore", "-m", "zerocore"], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": PACKAGE, **environment})
    lines = {line[:15].strip(): line[15:] for line in done.stdout.splitlines()}
    if done.returncode or list(lines) != ["zerocore", "Python", "torch", "CUDA", "NCCL", "Open MPI", "MPICH", "SIMD", "shared memory"]:
        raise SystemExit(done.stdout + done.stderr)
    return lines


def launch_as_deepspeed():
    """ZEROCORE_AS_DEEPSPEED=1: unmodified scripts that import deepspeed, under launchers without support for
    zerocore."""
    with tempfile.TemporaryDirectory() as folder:
        package = installed_package(folder)
        asked = {**package, "ZEROCORE_AS_DEEPSPEED": "1"}
        script = str(HERE / "cifar10_deepspeed.py")
        out, _ = run([PYTHON, "-W", "ignore", "-m", "deepspeed.launcher.runner", "--include", "localhost:0,1",
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
        replaced_deepspeed(pathlib.Path(folder), asked)
        # A machine without MPI.
        pathlib.Path(folder, "zerocore/binaries/libzerocore_openmpi.so").unlink()
        _, err = by_mpirun(1, "arrives", environment=package, expect=11)
        contains(err, "OMPI_COMM_WORLD_SIZE is set), and MPI cannot be loaded", "start the ranks with torchrun")
        out, _ = by_torchrun(2, script=str(HERE / "installing_deepspeed.py"), environment=package)
        contains(out, "local rank 0 of 2", "local rank 1 of 2")


def replaced_deepspeed(folder, asked):
    """Another package of that name is not found, or named if it was imported before. The package itself installs, too, after
    the modules that have looked for it."""
    other = folder / "scripts"
    other.joinpath("deepspeed").mkdir(parents=True)
    other.joinpath("deepspeed/__init__.py").write_text("")
    script = other / "script.py"
    script.write_text("import os, sys\nranks = os.environ['LOCAL_RANK'], os.environ['WORLD_SIZE']\nimport deepspeed\n"
                      "print(*ranks, deepspeed.__version__)\n")
    out, _ = by_mpirun(2, script=str(script), environment=asked)
    contains(out, "0 2 0.19.8", "1 2 0.19.8")
    # Python reads no zerocore.pth on PYTHONPATH, but sitecustomize.py, also from the folder before, which is run too.
    other.joinpath("sitecustomize.py").write_text("hidden = True\nprint('the hidden one')\n")
    on_path = {"PYTHONPATH": f"{PACKAGE}:{other}", "ZEROCORE_AS_DEEPSPEED": "1"}
    out, _ = run([PYTHON, "-W", "ignore", "-c", "import deepspeed; print(deepspeed.__version__)"], environment=on_path)
    contains(out, "the hidden one", "0.19.8")
    late = {"PYTHONPATH": f"{other}:{PACKAGE}", "ZEROCORE_AS_DEEPSPEED": "1"}  # Python finds neither
    for line in ("import zerocore", "import zerocore.as_deepspeed as a; a.install()"):
        _, err = run([PYTHON, "-W", "ignore", "-c", f"import deepspeed; {line}"], environment=late, expect=1)
        contains(err, f"it was imported before, from {other}/deepspeed/__init__.py", "python -m zerocore.as_deepspeed")
    if has("transformers") and has("accelerate"):
        run([PYTHON, "-W", "ignore", "-c", "import transformers.trainer as trainer, accelerate.accelerator as loops, deepspeed; "
             "assert 'zerocore' in trainer.deepspeed_init.__module__; loops.DeepSpeedEngineWrapper"],
            environment={"PYTHONPATH": f"{PACKAGE}/zerocore/as_deepspeed/shim:{PACKAGE}"})


def launch_accelerate():
    """accelerate launch with files of DeepSpeed and FSDP, accelerate's own and one that TRL ships, on CPU ranks: plain
    training."""
    # The precision of TRL's file apart, which is bf16.
    expect_plain_losses([(HERE / "accelerate_zero3.yaml", ()), *((file, ("--mixed_precision", "no")) for file in trl_files("fsdp2"))])


def launch_accelerate_by_mpirun():
    """mpirun sets none of the variables from which accelerate reads its ranks."""
    if not has("accelerate"):
        print("SKIPPED: accelerate is not installed")
        return
    script = str(HERE / "accelerate_by_mpirun.py")
    with tempfile.TemporaryDirectory() as folder:
        package = installed_package(folder)
        # Found by zerocore.pth, and by PYTHONPATH alone if the script imports zerocore.
        for environment, arguments in ((package, ()), ({"PYTHONPATH": f"{PACKAGE}:{HERE}"}, ("imported",))):
            out, _ = by_mpirun(2, *arguments, script=script, environment={**environment, "ZEROCORE_AS_DEEPSPEED": "1"})
            contains(out, "rank 0 of 2", "rank 1 of 2")
        _, err = by_mpirun(2, "late", script=script, environment=package, expect=70)
        contains(err, "accelerate has found 1 process, and the job has 2 ranks", "python -m zerocore.as_deepspeed")


def launch_accelerate_shipped():
    """All files, those of TRL in fp32, and as they are but for the number of ranks."""
    expect_plain_losses([*((HERE / f"accelerate_zero{stage}.yaml", ()) for stage in (2, 3)),
                         *((file, ("--mixed_precision", "no")) for file in trl_files())])
    expect_plain_losses([(file, ()) for file in trl_files()], tolerance=0.01)


def trl_files(*names):
    found = importlib.util.find_spec("trl")
    if found is None:
        return []
    folder = pathlib.Path(found.origin).parent / "accelerate_configs"
    return [folder / f"{name}.yaml" for name in names or ("zero1", "zero2", "zero3", "fsdp1", "fsdp2")]


def expect_plain_losses(files, tolerance=1e-6):
    """Compares the losses of each rank with plain training, for each (file, further options); all files give the same bits."""
    if not has("accelerate") or not files:
        print("SKIPPED: accelerate or trl is not installed")
        return
    first = None
    with tempfile.TemporaryDirectory() as folder:
        asked = {**installed_package(folder), "ZEROCORE_AS_DEEPSPEED": "1"}
        for file, options in files:
            out, _ = run([PYTHON, "-W", "ignore", "-m", "accelerate.commands.launch", "--config_file", str(file),
                          "--num_processes", "2", *options, "--main_process_port", str(free_port()),
                          str(HERE / "accelerate_launched.py")], environment=asked)
            losses = sorted(re.findall(r"rank (\d) of 2 in \w+: ([\d.]+), plain ([\d.]+)", out))
            first = first or losses
            if len(losses) != 2 or losses != first or "offload_param.device cpu" in out or any(
                    abs(float(loss) - float(plain)) > tolerance for _, loss, plain in losses):
                raise SystemExit(f"{file}: {out}, not {first}")


if __name__ == "__main__":
    globals()[sys.argv[4]]()
