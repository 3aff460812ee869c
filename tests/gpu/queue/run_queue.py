"""Runs a queue of tests and benchmarks within a time limit, and writes each result at once as a line of JSON.

  run_queue.py PART... [--seconds N] [--results DIR] [--done FILE] [--again PATTERN] [--tiny] [--list]

An entry starts only if its estimate fits into the rest of N seconds. It runs within its own limit, and whatever its
outcome, the queue continues. DIR/results.jsonl gets one line per result; DIR/log.txt the whole output of all entries,
as they write it. An outcome is

  passed        exit code 0
  failed        another exit code; "why" is the last line
  hung          it ran past its own limit, and was killed
  skipped       exit code 77, or a tool or library that it needs is missing; "why" names it. No success.
  interrupted   the time of this call ended before its limit
  no time       its estimate was longer than the rest of the time; it did not start

An entry that has passed, failed or hung in DIR/results.jsonl, or in FILE of an earlier call, is done, and is not run
again unless its name matches PATTERN. The entries of the part `probe` run in every call, which ends if one of them
does not pass. Exit code: 0 if all entries of the parts have passed, now or before; 1 if one has failed or hung; 2 if
one is missing.
"""

import argparse
import dataclasses
import fnmatch
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

SKIPPED = 77
DONE = ("passed", "failed", "hung")
PATIENCE_S = 4  # for processes to end after a signal
END_S = 6  # kept free at the end of a call
FIGURE = re.compile(rb"^figure (\S+) (\S+)", re.MULTILINE)


@dataclasses.dataclass
class Entry:
    """`figure NAME VALUE` on a line of the output becomes one of the figures of the result."""

    part: str
    name: str
    command: list
    estimate_s: float
    limit_s: float
    needs: tuple = ()  # commands on the PATH, or paths
    environment: dict = dataclasses.field(default_factory=dict)


def kill_session(session):
    """Kills all processes of a session, since ranks have process groups of their own."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for pid in session_members(session):
            try:
                os.kill(pid, sign)
            except ProcessLookupError:
                pass
        end = time.monotonic() + PATIENCE_S
        while session_members(session) and time.monotonic() < end:
            time.sleep(0.05)


def session_members(session):
    members = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.getsid(int(name)) == session:
                state = pathlib.Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[0]
                members += [int(name)] if state != "Z" else []
        except (ProcessLookupError, FileNotFoundError, PermissionError):
            pass
    return members


def last_line(text):
    lines = [line.strip() for line in text.decode(errors="replace").splitlines() if re.search(r"\w", line)]
    return lines[-1][:300] if lines else ""


def number(text):
    try:
        return float(text) if any(c in text for c in ".en") else int(text)
    except ValueError:
        return text


class Queue:
    def __init__(self, entries, results, seconds, done_before=()):
        self.entries = entries
        self.folder = pathlib.Path(results)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.results, self.log = self.folder / "results.jsonl", self.folder / "log.txt"
        self.end = time.monotonic() + seconds
        self.known = {}  # by name: the latest outcome that counts
        for file in (*done_before, self.results):
            self.read(pathlib.Path(file))

    def read(self, file):
        for line in file.read_text().splitlines() if file.exists() else ():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue  # an incomplete line, because the machine was taken away while it was written
            if record["outcome"] in DONE or record["name"] not in self.known:
                self.known[record["name"]] = record["outcome"]

    def left(self):
        return self.end - time.monotonic() - END_S

    def note(self, entry, outcome, seconds=0.0, why="", figures=None, line=None):
        record = {"name": entry.name, "part": entry.part, "outcome": outcome, "seconds": round(seconds, 1)}
        record |= {"why": why} if why else {}
        record |= {"figures": figures} if figures else {}
        record |= {"log": f"{self.log}:{line}"} if line else {}
        with open(self.results, "a") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if outcome in DONE or entry.name not in self.known:
            self.known[entry.name] = outcome
        shown = "  ".join(f"{name} {value}" for name, value in (figures or {}).items())
        print(f"{outcome:11} {seconds:6.1f} s  {entry.part}: {entry.name}{'  (' + why + ')' if why else ''}"
              f"{chr(10) + ' ' * 21 if shown else ''}{shown}", flush=True)

    def run(self, entry):
        """Returns whether the entry passed."""
        missing = [tool for tool in entry.needs if shutil.which(tool) is None and not os.path.exists(tool)]
        if missing:
            self.note(entry, "skipped", why=f"{', '.join(missing)}: not on this machine")
            return False
        if entry.estimate_s > self.left():
            self.note(entry, "no time", why=f"takes about {entry.estimate_s:.0f} s, {max(0, self.left()):.0f} s are left")
            return False
        limit = min(entry.limit_s, self.left())
        with open(self.log, "ab") as log:
            line = 1 + (self.log.read_bytes().count(b"\n"))
            log.write(f"== {entry.part}: {entry.name}: {' '.join(entry.command)}\n".encode())
            log.flush()
            begin, start = log.tell(), time.monotonic()
            code = self.execute(entry, log, limit)
        seconds = time.monotonic() - start
        output = self.log.read_bytes()[begin:]
        with open(self.log, "ab") as log:
            log.write(f"{'' if output.endswith(bytes([10])) or not output else chr(10)}== exit {code}, {seconds:.1f} s\n".encode())
        if code is None:
            outcome = "hung" if limit == entry.limit_s else "interrupted"
            why = f"killed after {limit:.0f} s"
        else:
            outcome = {0: "passed", SKIPPED: "skipped"}.get(code, "failed")
            why = "" if code == 0 else last_line(output) or f"exit {code}"
        figures = {name.decode(): number(value.decode()) for name, value in FIGURE.findall(output)}
        self.note(entry, outcome, seconds, why, figures, line)
        return outcome == "passed"

    @staticmethod
    def execute(entry, log, limit):
        """Returns the exit code, or None if the program had to be killed."""
        try:
            process = subprocess.Popen(entry.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                       start_new_session=True, env={**os.environ, **entry.environment})
        except OSError as error:
            log.write(f"cannot start: {error}\n".encode())
            return 127
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            kill_session(process.pid)
            process.wait()

    def run_all(self, again=()):
        for entry in self.entries:
            repeats = entry.part == "probe" or any(fnmatch.fnmatch(entry.name, pattern) for pattern in again)
            if not repeats and self.known.get(entry.name) in DONE:
                continue
            passed = self.run(entry)
            if entry.part == "probe" and not passed:
                print(f"stopped: {entry.name} did not pass, and nothing after it would tell anything")
                return 1
        return self.summary()

    def summary(self):
        outcomes = [self.known.get(entry.name, "not run") for entry in self.entries]
        counts = {outcome: outcomes.count(outcome) for outcome in dict.fromkeys(outcomes)}
        print(f"{len(outcomes)} entries: {', '.join(f'{n} {outcome}' for outcome, n in counts.items())}; {self.results}")
        if counts.get("failed") or counts.get("hung"):
            return 1
        return 0 if counts.get("passed", 0) == len(outcomes) else 2


def main(make_entries, parts):
    """Runs the queue. `make_entries(tiny)` returns the entries of all parts in their order; `parts` maps a name on
    the command line to its parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=list(parts), metavar="PART", help=", ".join(parts))
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--results", default="gpu-results", metavar="DIR")
    parser.add_argument("--done", action="append", default=[], metavar="FILE", help="results.jsonl of an earlier call")
    parser.add_argument("--again", action="append", default=[], metavar="PATTERN", help="entries to run once more")
    parser.add_argument("--tiny", action="store_true", help="tiny models, to try the queue itself")
    parser.add_argument("--list", action="store_true", help="only print the entries and their estimates")
    args = parser.parse_args()
    wanted = [part for name in args.parts for part in parts[name]]
    entries = [entry for entry in make_entries(args.tiny) if entry.part in wanted]
    if args.list:
        for entry in entries:
            print(f"{entry.part:10} {entry.estimate_s:5.0f} s (limit {entry.limit_s:.0f} s)  {entry.name}")
        print(f"{sum(entry.estimate_s for entry in entries):.0f} s")
        return 0
    return Queue(entries, args.results, args.seconds, args.done).run_all(args.again)


if __name__ == "__main__":
    import gpu_entries
    sys.exit(main(gpu_entries.make, gpu_entries.PARTS))
