"""Memory: ledger, formulas, the system's figures, and no allocations in the steady state.

usage: memory.py MPIEXEC TRAIN_GPT MALLOC_WATCH states|resident|steady|gpt2
"""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import launch  # noqa: E402
from gpt_layout import Layout  # noqa: E402

MPIEXEC, PROGRAM, MALLOC_WATCH = launch.absolute(sys.argv[1:4])
SHAPE = {"layers": 6, "channels": 36, "vocabulary": 259, "positions": 33}
STATES = ("parameters", "gradients", "master_weights", "optimizer_state")
MIB = 1 << 20

# Allowance per rank beyond plan and baseline: code and constants of the kernels and of the matrix library that run
# after the baseline is taken, its generated code, buffers of MPI. It does not grow with the model.
UNPLANNED = 12 * MIB


def require(condition, problem):
    if not condition:
        raise launch.Failed(problem)


def train(model, ranks, stage, bf16=False, steps=2, length=8, extra=None, **options):
    keys = {"train_micro_batch_size_per_gpu": 1, "zero_optimization.stage": stage, "bf16.enabled": str(bf16).lower(),
            **(extra or {})}
    arguments = ["--model", model, "--sequence-length", length, "--steps", steps, *launch.settings(keys)]
    return launch.train(MPIEXEC, PROGRAM, ranks, arguments, **options).summary


def factors(stage, bf16, ranks):
    """Returns bytes per parameter of the model states on one rank."""
    n = ranks
    fp32 = (16, 8 + 8 / n, 4 + 12 / n, 16 / n)
    mixed = (16, 4 + 12 / n, 2 + 14 / n, 16 / n)
    return (mixed if bf16 else fp32)[stage]


def states(rank):
    return sum(rank["memory"][category]["planned"] for category in STATES)


def check_ledger(summary):
    for rank in summary["ranks"]:
        for category, account in rank["memory"].items():
            require(account["planned"] == account["peak"] == account.get("current", account["peak"]),
                    f"rank {rank['rank']}: {category} {account}")


def states_by_formula(folder):
    """States must equal the formula over the padded elements exactly, since a slice is a whole number of allocation
    units."""
    model = shape_of(folder, SHAPE["layers"])
    for ranks in (1, 2, 3, 4):
        for stage, bf16 in ((0, False), (1, True), (2, True), (3, False)):
            padded = Layout(**SHAPE, ranks=ranks).total
            summary = train(model, ranks, stage, bf16)
            check_ledger(summary)
            for rank in summary["ranks"]:
                expected = factors(stage, bf16, ranks) * padded
                require(states(rank) == expected,
                        f"{ranks} ranks, stage {stage}: states of {states(rank)} bytes, not {expected}")
    return "equal to the byte, planned = peak in every category"


def shape_of(folder, layers):
    path = os.path.join(folder, f"{layers}.json")
    return launch.write_model(path, layers, SHAPE["channels"], 3, SHAPE["vocabulary"], SHAPE["positions"])


def slots_and_depth(folder):
    """20 layers must have as many slots as 6."""
    prefetch = {"zero_optimization.stage3_prefetch_bucket_size": 40000,
                "zero_optimization.stage3_max_live_parameters": 1000000000,
                "zero_optimization.stage3_max_reuse_distance": 1000000000}
    for extra in ({}, prefetch):
        slots = set()
        for layers in (6, 20):
            rank = train(shape_of(folder, layers), 2, 3, extra=extra)["ranks"][0]
            slots.add(tuple(rank["memory"][kind]["planned"] for kind in ("parameter_slots", "gradient_slots")))
        require(len(slots) == 1 and min(slots.pop()) > 0, f"slot bytes with {extra}: {slots}")
    return "slot bytes do not depend on depth"


def check_resident(summary, what):
    """Planned + baseline must equal the system's figure (PSS), over all ranks, up to the stated exceptions."""
    ranks = summary["ranks"]
    planned = sum(account["planned"] for rank in ranks for account in rank["memory"].values())
    grown = sum(rank["resident_bytes"] - rank["baseline_bytes"] for rank in ranks)
    beyond = (grown - planned) / len(ranks)
    require(-MIB <= beyond <= UNPLANNED, f"{what}: {beyond / MIB:.2f} MiB per rank beyond plan and baseline")
    return f"{what}: planned {planned / len(ranks) / MIB:.1f}, resident beyond it {beyond / MIB:.2f} MiB per rank"


def resident(_):
    found = [check_resident(train(model, ranks, stage, length=64), f"{model}, {ranks} ranks, stage {stage}")
             for model, ranks, stage in (("mini", 1, 0), ("mini", 2, 0), ("mini", 2, 3), ("mini", 4, 1), ("mini", 4, 3),
                                         ("llama-tiny", 3, 3))]
    return "; ".join(found)


def gpt2(_):
    """Trains 124 M parameters in real memory: the classic formulas hold within 0.1 %."""
    found = []
    for stage in (1, 3):
        ranks = 4
        summary = train("gpt2", ranks, stage, steps=1, length=16, limit=300)
        check_ledger(summary)
        for rank in summary["ranks"]:
            ratio = states(rank) / (factors(stage, False, ranks) * summary["parameter_count"])
            require(abs(ratio - 1) < 1e-3, f"stage {stage}: {ratio:.6f} of the formula")
        found.append(f"{ratio:.6f} of the formula, " + check_resident(summary, f"stage {stage}"))
    return "; ".join(found)


def watched(folder, ranks, arguments, counting=False, environment=None):
    """Returns allocations above 4 KiB from step 2 on, by process; or from the start, to test the watch itself."""
    state = os.path.join(folder, "watch")
    pathlib.Path(state).write_bytes(bytes([counting]) + bytes(4095))
    wrapper = ["env", f"LD_PRELOAD={MALLOC_WATCH}"]
    launch.train(MPIEXEC, PROGRAM, ranks, ["--steps", 9, *arguments], wrapper=wrapper,
                 environment={"MALLOC_WATCH_STATE": state, "MALLOC_WATCH_FROM": '{"step":2,',
                              "MALLOC_WATCH_UNTIL": '{"step":8,', **(environment or {})})
    reports = []
    for path in pathlib.Path(folder).glob("watch.*"):
        reports.append(path.read_text())
        path.unlink()
    return reports


def own_memory_of_products():
    """Returns exceptions to the watch: if oneDNN 2 has no kernels of its newer kind, as for AVX2, its older ones pack
    operands into memory that they allocate themselves, although the caller provides scratch memory."""
    for bf16 in ("false", "true"):
        arguments = ["--model", "tiny", "--steps", 1, "--sequence-length", 200, "--set", f"bf16.enabled={bf16}"]
        run = launch.train(MPIEXEC, PROGRAM, 1, arguments, environment={"ONEDNN_VERBOSE": "1"})
        if ",gemm:" in run.printed:
            return {"MALLOC_WATCH_EXCEPT": "libdnnl"}
    return {}


def steady(folder):
    """No allocation above 4 KiB after step 2."""
    length = ["--sequence-length", 200]
    loud = [report for report in watched(folder, 2, length, counting=True) if int(report.split()[1]) > 0]
    require(len(loud) == 2, "the watch sees nothing")
    excepted = own_memory_of_products()
    runs = 0
    for model, stage, bf16, micro_steps, executor in (
            ("tiny", 0, False, 1, "inline"), ("tiny", 1, True, 3, "worker"), ("tiny", 2, False, 3, "worker"),
            ("tiny", 3, False, 1, "inline"), ("tiny", 3, True, 3, "worker"), ("llama-tiny", 0, False, 1, "worker"),
            ("llama-tiny", 3, True, 3, "inline")):
        keys = {"zero_optimization.stage": stage, "bf16.enabled": str(bf16).lower(),
                "gradient_accumulation_steps": micro_steps, "train_micro_batch_size_per_gpu": 2}
        reports = watched(folder, 2, ["--model", model, *length, *launch.settings(keys)],
                          environment={"ZERO_EXECUTOR": executor, **excepted})
        require(len(reports) == 2, f"{len(reports)} reports")
        for report in reports:
            require(int(report.split()[1]) == 0, f"{model}, {keys}, {executor}: PID REQUESTS BYTES {report}")
        runs += 1
    return f"no request above 4 KiB in steps 3 to 8 of {runs} runs" + (", but for oneDNN's own" if excepted else "")


TESTS = {"states": (states_by_formula, slots_and_depth), "resident": (resident,), "steady": (steady,), "gpt2": (gpt2,)}
launch.run_all((test.__name__, test) for test in TESTS[sys.argv[4]])
