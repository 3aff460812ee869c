"""Runs the cases of a campaign, and prints the result of each class; if a case fails, also the command that repeats
it."""

import argparse
import collections
import concurrent.futures
import inspect
import shlex
import sys
import tempfile
import time
import traceback

from campaign_case import NO_RIGHT, launch


def chosen(classes, cases, only):
    """Returns (class, number) of each case: every class has its share, and at least one."""
    classes = [c for c in classes if only is None or only in c.name]
    weights = sum(c.weight for c in classes)
    counts = [max(1, round(cases * c.weight / weights)) for c in classes]
    numbered = [(c, i) for c, count in zip(classes, counts) for i in range(count)]
    # In turns, so that a campaign that is cut short has run every class.
    return sorted(numbered, key=lambda pair: pair[1])


def run(make_case, programs, seed, fault, number):
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="campaign") as folder:
        case = None
        try:
            case = make_case(programs, folder, f"{seed} {fault.name} {number}")
            problem = fault.test(case) or ""
        except launch.Failed as failed:
            problem = (case.said if case else "") + str(failed)
        except Exception:  # an error in the campaign itself also counts as a failed case
            problem = traceback.format_exc()
    return problem, time.monotonic() - begin


def command_of(programs, seed, fault, number):
    """Returns the command that repeats one case."""
    return shlex.join([sys.executable, sys.argv[0], *programs, "--seed", seed, "--class", fault.name, "--case", str(number)])


def main(make_programs, classes, make_case, cases):
    """Runs this many cases of these classes, or as many as there is time for. `make_programs` takes the paths of the
    command line, by name."""
    names = list(inspect.signature(make_programs).parameters)
    parser = argparse.ArgumentParser()
    for name in names:
        parser.add_argument(name)
    parser.add_argument("--cases", type=int, default=cases)
    parser.add_argument("--seconds", type=float, help="begin no case after so long")
    parser.add_argument("--seed", default="1", help="0: the day")
    parser.add_argument("--class", dest="only")
    parser.add_argument("--case", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.seed == "0":
        options.seed = str(int(time.time() // 86400))
    paths = [getattr(options, name) for name in names]
    programs = make_programs(*paths)
    cases = chosen(classes, options.cases, options.only)
    if options.case is not None:
        cases = [(fault, options.case) for fault in dict.fromkeys(fault for fault, _ in cases)]
    table = collections.defaultdict(lambda: [0, 0, 0])
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        def begun(case):
            late = options.seconds and time.monotonic() - begin > options.seconds
            return None if late else run(make_case, programs, options.seed, *case)

        running = {pool.submit(begun, case): case for case in cases}
        for done in concurrent.futures.as_completed(running):
            if done.result() is None:
                continue
            fault, number = running[done]
            problem, seconds = done.result()
            skipped = problem == NO_RIGHT
            table[fault.name][2 if skipped else bool(problem)] += 1
            result = "ok" if not problem else problem if skipped else "FAILED: " + problem
            print(f"{fault.name} {number}: {result} ({seconds:.1f} s)", flush=True)
            if problem and not skipped:
                print(f"  again: {command_of(paths, options.seed, fault, number)}", flush=True)
    print(f"\n{'class':40}{'cases':>7}{'as expected':>13}{'not tried':>11}{'not':>5}")
    total = [sum(counts[i] for counts in table.values()) for i in range(3)]
    for name, (good, bad, skipped) in [*table.items(), ("all", total)]:
        print(f"{name:40}{good + bad + skipped:7}{good:13}{skipped:11}{bad:5}")
    bad = total[1]
    print(f"seed {options.seed}, {time.monotonic() - begin:.0f} s")
    sys.exit(bad != 0)
