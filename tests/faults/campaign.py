"""A campaign of faults against train_gpt, chosen by a seed: each has an expected end, and afterwards a start with the
same command reaches the bits of the undisturbed run. docs/faults.md lists the classes.

usage: campaign.py MPIEXEC TRAIN_GPT ZERO FAILING_CALLS [--cases N] [--seed S] [--class WORD] [--case I] [--jobs J]
"""

import argparse
import collections
import concurrent.futures
import pathlib
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import campaign_adapters  # noqa: E402, F401
import campaign_classes  # noqa: E402, F401
import campaign_offload  # noqa: E402, F401
from campaign_case import CLASSES, NO_RIGHT, Case, Programs, launch  # noqa: E402


def chosen(cases, only):
    """(class, number) of each case: every class has its share, and one at least."""
    classes = [c for c in CLASSES if only is None or only in c.name]
    weights = sum(c.weight for c in classes)
    counts = [max(1, round(cases * c.weight / weights)) for c in classes]
    numbered = [(c, i) for c, count in zip(classes, counts) for i in range(count)]
    # In turns, so that a campaign that is cut short has seen every class.
    return sorted(numbered, key=lambda pair: pair[1])


def run(programs, seed, fault, number):
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="campaign") as folder:
        case = None
        try:
            case = Case(programs, folder, f"{seed} {fault.name} {number}")
            problem = fault.test(case) or ""
        except launch.Failed as failed:
            problem = (case.said if case else "") + str(failed)
        except Exception:  # a mistake of the campaign is a case that failed
            problem = traceback.format_exc()
    return problem, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs=4)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--class", dest="only")
    parser.add_argument("--case", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    programs = Programs(*options.programs)
    cases = chosen(options.cases, options.only)
    if options.case is not None:
        cases = [(fault, options.case) for fault in dict.fromkeys(fault for fault, _ in cases)]
    table = collections.defaultdict(lambda: [0, 0, 0])
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(run, programs, options.seed, *case): case for case in cases}
        for done in concurrent.futures.as_completed(running):
            fault, number = running[done]
            problem, seconds = done.result()
            skipped = problem == NO_RIGHT
            table[fault.name][2 if skipped else bool(problem)] += 1
            result = "ok" if not problem else problem if skipped else "FAILED: " + problem
            print(f"{fault.name} {number}: {result} ({seconds:.1f} s)", flush=True)
    print(f"\n{'class':40}{'cases':>7}{'as expected':>13}{'not tried':>11}{'not':>5}")
    total = [sum(counts[i] for counts in table.values()) for i in range(3)]
    for name, (good, bad, skipped) in [*table.items(), ("all", total)]:
        print(f"{name:40}{good + bad + skipped:7}{good:13}{skipped:11}{bad:5}")
    bad = total[1]
    print(f"seed {options.seed}, {time.monotonic() - begin:.0f} s")
    sys.exit(bad != 0)


main()
