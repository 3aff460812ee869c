"""The trace of a job of train_gpt: on one clock, without gaps, and the diagnostics of DeepSpeed's keys.

usage: trace.py MPIEXEC TRAIN_GPT
"""

import collections
import json
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import launch  # noqa: E402

MPIEXEC, PROGRAM = launch.absolute(sys.argv[1:3])
PARTS = {"other", "kernels", "waiting", "optimizer"}


def require(condition, problem):
    if not condition:
        raise launch.Failed(problem)


def command(ranks, steps, *more):
    return launch.mpirun(MPIEXEC, ranks, PROGRAM, "--model", "tiny", "--sequence-length", "24", "--threads", "1",
                         "--steps", str(steps), "--trace", "t.json", *more)


def spans_of(path):
    """Returns the spans of a file by rank."""
    spans = collections.defaultdict(list)
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "X":
            spans[event["pid"]].append(event)
    return spans


def check_sums(spans):
    """Checks that the parts of each complete step add up to it; returns (begin, end) of each by its number."""
    steps = {span["args"]["step"]: span for span in spans if span["cat"] == "step"}
    parts = collections.Counter()
    for span in spans:
        if span["cat"] in PARTS:
            parts[span["args"]["step"]] += span["dur"]
    for number, step in steps.items():
        require(abs(parts[number] - step["dur"]) <= 0.02 * step["dur"],
                f"step {number} took {step['dur']} us, and its parts {parts[number]} us")
    return {number: (step["ts"], step["ts"] + step["dur"]) for number, step in steps.items()}


def check_job(folder, ranks, stage, *more, environment=None):
    """Trains, and checks the trace of all ranks. Returns the job's output and its log."""
    folder = pathlib.Path(folder)
    job = launch.Job(command(ranks, 6, "--stage", str(stage), "--log-json", "log.jsonl", *more), folder, environment)
    code = job.finish(120)
    require(code == 0, f"exit code {code}\n{job.text()}")
    spans = spans_of(folder / "t.json")
    require(sorted(spans) == list(range(ranks)), f"ranks {sorted(spans)}")
    steps = {rank: check_sums(spans[rank]) for rank in spans}
    for rank in spans:
        require(sorted(steps[rank]) == list(range(1, 7)), f"rank {rank} has steps {sorted(steps[rank])}")
    for number in range(1, 7):  # the ranks agree in each step, so nobody ends it before all have begun it
        begins, ends = zip(*(steps[rank][number] for rank in steps))
        require(max(begins) < min(ends), f"step {number}: ranks {begins} {ends}")
    names = {span["name"] for span in spans[0]}
    for name in ("forward", "backward", "reduce", *(["gather", "wait for gather"] if stage == 3 else [])):
        require(f"{name} of transformer.h.0" in names, f"no span is named {name}: {sorted(names)}")
    require("mean of steps 1 to 6" in job.printed(), job.printed())
    return job.printed(), [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def all_ranks(folder):
    check_job(folder, 4, 3)


def replicated(folder):
    check_job(folder, 3, 1)


def two_nodes(folder):
    """Ranks of different nodes compare their clocks, which are the same one here."""
    check_job(folder, 3, 3, environment={"ZERO_TEST_NODES": "0,0,1"})


def diagnostics(folder):
    keys = {"steps_per_print": 3, "wall_clock_breakdown": "true", "memory_breakdown": "true", "dump_state": "true",
            "comms_logger.enabled": "true", "flops_profiler.enabled": "true", "flops_profiler.profile_step": 2}
    printed, log = check_job(folder, 2, 3, *map(str, launch.settings(keys)))
    for text in ("time     forward ", "memory   parameter_slots", "comms    gather", "profile  step 2: ",
                 "zero: the units:\n", "wall_clock_breakdown = true"):
        require(text in printed, f"no {text!r} in\n{printed}")
    require(printed.count("time     ") == 3, printed)  # steps 2, 3 and 6
    records = [line["diagnostics"] for line in log if "diagnostics" in line]
    require([record["step"] for record in records] == [2, 3, 6], f"{records}")
    require([record["steps"] for record in records] == [1, 3, 3], f"{records}")
    for record in records:
        seconds = record["seconds"]
        parts = sum(seconds[part] for part in ("forward", "backward", "update", "waiting", "other"))
        require(abs(parts - record["steps"] * seconds["step"]) <= 1e-6, f"{seconds}")
    require(records[0]["profile"]["flops"] > 0, f"{records[0]}")
    require(records[1]["exchanges"]["gather"]["bytes"] > 0, f"{records[1]}")
    require(records[1]["memory"]["parameter_slots"]["peak"] > 0, f"{records[1]}")
    require("transformer.h.0" in log[0]["state"]["units"], f"{log[0]}")


def on_request(folder):
    """SIGUSR1 makes each rank write its own trace, and training goes on until it is stopped."""
    folder = pathlib.Path(folder)
    job = launch.Job(command(2, 1_000_000, "--stage", "2"), folder)
    files = [folder / f"t.rank-{rank}.json" for rank in range(2)]
    while "step 1/" not in job.printed():
        require(job.process.poll() is None, job.text())
        time.sleep(0.05)
    job.process.send_signal(signal.SIGUSR1)
    while job.text().count("its trace is in t.rank-") < 2:
        require(job.process.poll() is None, job.text())
        time.sleep(0.05)
    job.process.send_signal(signal.SIGUSR2)
    code = job.finish(120)
    require(code == 21, f"exit code {code}\n{job.text()}")
    for rank, file in enumerate(files):
        spans = spans_of(file)
        require(list(spans) == [rank], f"{file} has ranks {list(spans)}")
        check_sums(spans[rank])


launch.run_all([(test.__name__, test) for test in (all_ranks, replicated, two_nodes, diagnostics, on_request)])
