"""Whole jobs with the settings of a draw: their bits, their memory against the plan, and their state after a kill."""

import json
import signal

from campaign_case import LIMIT_S, fault_class, launch
from campaign_classes import NO_CORE, at_a_random_moment, send
from drawn_case import options_of

UNPLANNED = ("activations", "checkpoints")  # by the engine; zero plan adds a model's activations


@fault_class("bits of settings, and memory against zero plan", 12)
def settings(case):
    """Every setting of a draw must train the same; the largest rank must use the bytes of zero plan exactly."""
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
    command = [case.programs.zero, "plan", "--ranks", str(case.ranks), "--per-node", str(case.ranks), "--device", "cpu",
               "--rows", "config", "--memory", "--json", "plan.json", *map(str, base)]
    job = launch.Job(command, case.folder, environment)
    case.end(job, (0,))
    planned = engine_bytes(json.loads((case.folder / "plan.json").read_text())[0]["memory"])
    for which in ("planned", "peak"):
        held = max(engine_bytes({name: use[which] for name, use in rank["memory"].items()}) for rank in run.summary["ranks"])
        case.require(held == planned, f"{which} {held} bytes on the largest rank, and zero plan says {planned}", job)


def engine_bytes(memory):
    """Returns the bytes of all categories that the engine plans."""
    return sum(count for name, count in memory.items() if name not in UNPLANNED)


@fault_class("kill of ranks at the settings of a draw", 12)
def killed(case):
    victims = case.random.sample(range(case.ranks), case.random.randint(1, case.ranks))
    job = case.start(wrapper=NO_CORE)
    pids = at_a_random_moment(case, job)
    case.note(f"SIGKILL to ranks {victims} of {case.ranks}")
    send(signal.SIGKILL, *(pids[rank] for rank in victims if rank in pids))
    case.end(job, range(256), limit=LIMIT_S)  # 0 if it had just ended
    case.finishes()
