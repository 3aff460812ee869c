"""Jobs that fail under the real launcher: one line gives the reason, and Open MPI's messages are hidden if that line
exists.

usage: zero_run_job_test.py ZERO TRAIN_GPT    Exits with 77 if mpirun is not Open MPI's.
"""

import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import termios
import time
import unittest

ZERO, TRAIN_GPT = sys.argv[1:3]
os.environ.setdefault("ZERO_STRICT", "0")  # strict mode would print a notice
RULE = "-" * 74


def own_terminal():
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def run(*command, after=None):
    """Returns exit code, standard output, and standard error without the executed line and its notes."""
    process = subprocess.Popen([ZERO, "run", "-n", "2", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, errors="replace")
    if after:
        after(process)
    out, err = process.communicate(timeout=100)
    lines = [line for line in err.splitlines() if not re.match(r"zero run: \d+ ranks|zero run: more ranks|mpirun -n ", line)]
    return process.returncode, out, "\n".join(lines)


class Jobs(unittest.TestCase):
    def test_a_cause_stands_alone(self):
        for _ in range(3):  # Open MPI's message uses a separate channel, so the order varies
            code, out, err = run(TRAIN_GPT, "--stepps", "3")
            self.assertEqual((code, out), (10, ""))
            self.assertRegex(err, r"\Azero: rank [01]: unknown option --stepps; did you mean \"--steps\"\?\Z")
        code, _, err = run("--verbose", TRAIN_GPT, "--stepps", "3")
        self.assertEqual(code, 10)
        self.assertRegex(err, r"MPI_ABORT was invoked on rank|ORTE_ERROR_LOG|exited with non-zero status|Primary job")

    def test_a_rank_that_is_killed_is_named_by_its_peer(self):
        def kill_one(process):
            text = ""
            while "step 1/" not in text:
                text += process.stdout.readline()
            with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
                launcher = file.read().split()[0]
            with open(f"/proc/{launcher}/task/{launcher}/children") as file:
                ranks = file.read().split()
            os.kill(int(ranks[-1]), signal.SIGKILL)

        code, _, err = run(TRAIN_GPT, "--threads", "1", "--steps", "1000000", "--set", "steps_per_print=1", after=kill_one)
        self.assertNotEqual(code, 0)
        self.assertRegex(err, r"\Azero: rank \d: [^\n]+\Z")

    def test_a_training_that_is_stopped_saves_and_says_so(self):
        def stop(process, number=signal.SIGTERM):
            while "step 2/" not in process.stdout.readline():
                self.assertIsNone(process.poll())
            process.send_signal(number)

        train = (TRAIN_GPT, "--threads", "1", "--steps", "1000000", "--sequence-length", "16", "--set", "steps_per_print=1")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            with self.subTest(signal=number.name), tempfile.TemporaryDirectory() as folder:
                code, _, err = run(*train, "--checkpoint", folder, after=lambda process: stop(process, number))
                self.assertEqual(code, 20, err)
                newest = max(int(name[5:]) for name in os.listdir(folder) if name.startswith("step-"))
                self.assertIn(f"zero run: stopped by {number.name} after step {newest}: the newest checkpoint is that of step "
                              f'{newest}, in "{folder}"', err)
                self.assertNotIn(RULE, err)  # nothing of the launcher's about a stop that was requested
        code, _, err = run(*train, after=stop)
        self.assertEqual(code, 21, err)
        self.assertIn("nothing saved after step", err)

    def test_a_terminals_interrupt_saves_too(self):
        ours, theirs = pty.openpty()
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen([ZERO, "run", "-n", "2", TRAIN_GPT, "--threads", "1", "--steps", "1000000",
                                        "--sequence-length", "16", "--checkpoint", folder], stdin=theirs,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=own_terminal)
            os.close(theirs)
            while not os.path.exists(f"{folder}/.lock"):
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            os.write(ours, b"\x03")
            err = process.communicate(timeout=100)[1]
            os.close(ours)
            self.assertIn(process.returncode, (20, 21), err)  # 21: before the first step
            self.assertIn("zero run: stopped by SIGINT", err)
            self.assertEqual(process.returncode == 20, any(name.startswith("step-") for name in os.listdir(folder)))

    def test_a_program_that_names_its_processes_and_what_it_starts_besides_go_on(self):
        """The environment of a process is not its own for ever, and does not make a process one of the job's."""
        script = ('setsid sh -c "sleep 4; echo uploaded >done" >/dev/null 2>&1 & exec env -i PATH="$PATH" '
                  'sh -c "sleep 2; exit 0"')
        for restarts in ([], ["--restarts", "1"]):
            with self.subTest(restarts=restarts), tempfile.TemporaryDirectory() as folder:
                done = subprocess.run([ZERO, "run", "-n", "1", *restarts, "sh", "-c", script], cwd=folder, timeout=60,
                                      capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                deadline = time.monotonic() + 30
                while not os.path.exists(f"{folder}/done"):
                    self.assertLess(time.monotonic(), deadline, "the process next to the ranks was killed")
                    time.sleep(0.05)

    def test_hostfiles_as_people_have_them_start(self):
        """Open MPI must place ranks as planned."""
        own = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()[:1]
        for text in ("# two workers\r\nlocalhost slots=2\r\n\r\n", "localhost\nlocalhost\n", "localhost slots = 2\n",
                     "127.0.1.1 slots=2\n", "[::1] slots=2\n", "localhost slots=1\n127.0.0.1 slots=1\n", *own):
            with self.subTest(text=text), tempfile.NamedTemporaryFile("w", newline="") as file:
                file.write(text)
                file.flush()
                done = subprocess.run([ZERO, "run", "-n", "4", "--hostfile", file.name, "sh", "-c", "echo $OMPI_COMM_WORLD_SIZE"],
                                      capture_output=True, text=True, timeout=60)
                if "slots=1" in text:
                    self.assertEqual(done.returncode, 10, done.stderr)
                    continue
                self.assertEqual((done.returncode, done.stdout), (0, "4\n4\n4\n4\n"), done.stderr)

    def missing(self, *command, late):
        """Rank 1 runs another command before it starts MPI."""
        script = f'[ "$OMPI_COMM_WORLD_RANK" = 1 ] && {late}; exec "$@"'
        begin = time.monotonic()
        code, _, err = run(*command[:-1], "sh", "-c", script, "sh", TRAIN_GPT, "--threads", "1", "--steps", "1",
                           *command[-1])
        self.assertEqual(code, 18)
        self.assertLess(time.monotonic() - begin, 20)
        cause, said = err.split("\n", 1)
        self.assertRegex(cause, r"\Azero: rank 0: MPI did not come up on all ranks within 2 s: this rank, on host .*, waits")
        return said

    def test_a_rank_that_does_not_come_up_is_named(self):
        said = self.missing("--start-limit", "2", (), late="sleep 60")
        self.assertRegex(said, r"(?m)^zero run: rank 1 is missing: it has not reached zero::run\(\)$")
        os.environ["ZERO_ERROR_JSON"] = "1"
        said = self.missing(("--start-limit", "2"), late="kill -STOP $$")
        del os.environ["ZERO_ERROR_JSON"]
        self.assertRegex(said, r'(?m)^\{"zerr":"STALLED","rank":0,.*"exit_code":18,"message":"MPI did not come up')
        self.assertRegex(said, r"(?m)^zero run: rank 1 is missing: its process \d+ is stopped$")

    def test_without_a_cause_of_ours_the_launcher_is_heard(self):
        code, _, err = run(sys.executable, "-c", "raise SystemExit(3)")
        self.assertEqual(code, 3)
        self.assertRegex(err, rf"(?s)\A{RULE}\n.*exited with non-zero status.*Exit code: +3\n{RULE}\Z")

    def test_success_says_nothing(self):
        code, out, err = run(TRAIN_GPT, "--threads", "1", "--steps", "1")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("step 1/1", out)


if __name__ == "__main__":
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    if not re.search(r"\(Open MPI\)", version):
        print("skipped: mpirun is not Open MPI's")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
