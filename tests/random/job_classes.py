"""Whole jobs with the settings of a draw: their bits, their memory against the plan, and their state after a kill."""

import json
import signal

from campaign_case import LIMIT_S, fault_class, launch
from campaign_classes import NO_CORE, at_a_random_moment, send
from drawn_case import options_of

UNPLANNED = ("activations", "checkpoints")  # by --plan


@fault_class("bits of settings, and memory against --plan", 12)
def settings(case):
    """Every setting of a draw must train the same; the largest rank must use the bytes of --plan exactly."""
    case.choose_draw(case.number)
    expected, model = None, case.random.choice(("tiny", "llama-tiny"))
    for setting in case.draw["settings"]:
        options, environment = options_of(case.draw, setting, case.folder)
        case.note(f"{case.ranks} ranks: {' '.join(options)} {environment}")
        base = ["--model", model, "--sequence-length", 8, *options]
        run = launch.train(case.programs.mpiexec, case.programs.train_gpt, case.ranks, ["--steps", 3, *base], environment)
        expected = expected or run.bits()
        case.require(run.bits() == expected, "other bits than the first setting has")
        check_plan(case, base, environment, run)


def check_plan(case, base, environment, run):
    job = launch.Job([case.programs.train_gpt, "--plan", str(case.ranks), "--report", "plan", *map(str, base)], case.folder,
                     environment)
    case.end(job, (0,))
    planned = memory_of(json.loads((case.folder / "plan/report.json").read_text())["variants"][0])
    for which in ("planned", "peak"):
        held = max(memory_of(rank, which) for rank in run.summary["ranks"])
        case.require(held == planned, f"{which} {held} bytes on the largest rank, and --plan says {planned}", job)


def memory_of(rank, which="planned"):
    return sum(use[which] for name, use in rank["memory"].items() if name not in UNPLANNED)


@fault_class("kill of ranks at the settings of a draw", 12)
def killed(case):
    victims = case.random.sample(range(case.ranks), case.random.randint(1, case.ranks))
    job = case.start(wrapper=NO_CORE)
    pids = at_a_random_moment(case, job)
    case.note(f"SIGKILL to ranks {victims} of {case.ranks}")
    send(signal.SIGKILL, *(pids[rank] for rank in victims if rank in pids))
    case.end(job, range(256), limit=LIMIT_S)  # 0 if it had just ended
    case.finishes()
