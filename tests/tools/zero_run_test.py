"""Runs the `zero` program with replacements of mpirun. Usage: zero_run_test.py PATH_OF_ZERO"""

import concurrent.futures
import fcntl
import os
import pty
import random
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
import unittest

ZERO = ""

OPEN_MPI = """#!/bin/sh
if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4"; exit 0; fi
printf '<%s>' "$@"
exit 42
"""
# A launcher controlled by the test: its program's name is a script for the shell.
DOING = """#!/bin/sh
if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4"; exit 0; fi
while [ "$1" != ./prog ]; do shift; done
exec ./prog
"""
RULE = "-" * 74
ABORTED = f"{RULE}\nMPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\nwith errorcode 10.\n{RULE}\n"
NO_SLOTS = f"{RULE}\nThere are not enough slots available in the system\n{RULE}\n"
CAUSE = "zero: rank 0: unknown option --stepps\n"
BROKEN = """#!/bin/sh
echo "cannot load libopen-rte" >&2
exit 127
"""


# Ranks of ZeroCore, as the launcher reports them.
UP = "echo zero: mark: up 0 1 1 elsewhere >&2; echo zero: mark: up 1 1 1 elsewhere >&2; "
READY = UP + "".join(f"echo zero: mark: {word} {rank} >&2; " for word in ("start", "stoppable") for rank in (0, 1)) + "echo ready\n"


def name_of(pid):
    """Returns the name of a process as ranks report it (zero/base/process_name.h)."""
    with open(f"/proc/{pid}/stat") as file:
        start = file.read().rsplit(") ", 1)[1].split()[19]
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{pid} {start} {file.read().strip()} {os.readlink('/proc/self/ns/pid')} {os.readlink('/proc/self/ns/net')}"


def up_of_rank(rank, script):
    """Returns a script that starts a rank, and reports it as `zero run` asks it to."""
    return (f"sh -c 'read -r p _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ s _ </proc/$$/stat; read -r b "
            f"</proc/sys/kernel/random/boot_id; echo zero: mark: up {rank} $p $s $b $(readlink /proc/$$/ns/pid) "
            f"$(readlink /proc/$$/ns/net) >&2; {script}' &\n")


def processes_with(variable):
    """Returns the pids of processes with this NAME=VALUE in their environment."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if variable.encode() in file.read().split(b"\0"):
                    found.append(int(entry))
        except OSError:
            continue
    return found


def own_terminal():
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class ZeroRun(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, text, mode=0o755):
        path = os.path.join(self.folder.name, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def zero(self, *arguments, path=None, **variables):
        environment = {k: v for k, v in os.environ.items()
                       if not k.startswith(("OMPI_", "PMI", "SLURM_", "PBS_", "LSB_"))}
        environment["PATH"] = path or self.folder.name + ":/usr/bin:/bin"
        environment.update(variables)
        return subprocess.run([ZERO, *arguments], capture_output=True, text=True, cwd=self.folder.name,
                              env=environment, timeout=60)

    def refused(self, code, message, *arguments, **keywords):
        result = self.zero(*arguments, **keywords)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn(message, result.stderr)
        self.assertEqual(result.stdout, "")

    def test_help_and_version(self):
        for arguments in (["--help"], ["run", "--help"], ["--version"]):
            self.assertEqual(self.zero(*arguments).returncode, 0)
        self.assertIn("zero run -n N", self.zero("run", "--help").stdout)

    def test_wrong_command_lines(self):
        self.refused(10, "A run:\n  run ")
        self.refused(10, "unknown command rum", "rum")
        self.refused(10, "-n is missing", "run", "echo")
        for wrong in ("2", "2:", ":2", "0:2", "3:2", "2:x", "2:3:4"):
            self.refused(10, f"--elastic {wrong}: expected MIN:MAX", "run", "--elastic", wrong, "echo")
        self.refused(10, "--elastic 1:2 is --min-ranks 1 -n 2", "run", "-n", "2", "--elastic", "1:2", "echo")
        self.refused(10, "give --restarts K too", "run", "-n", "2", "--min-ranks", "1", "echo")
        self.refused(10, "--min-ranks 3 is above -n 2", "run", "-n", "2", "--restarts", "1", "--min-ranks", "3", "echo")
        self.refused(10, "--restarts places ranks itself", "run", "-n", "2", "--restarts", "1", "--launcher-arg=--map-by",
                     "--launcher-arg=node", "echo")
        self.refused(10, "0", "run", "-n", "0", "echo")
        self.refused(10, "no program given", "run", "-n", "2")
        self.refused(10, "unknown option --oops", "run", "-n", "2", "--oops", "echo")

    def test_wrong_programs(self):
        self.refused(10, "nosuch is not in PATH", "run", "-n", "2", "nosuch")
        self.refused(10, "./nosuch does not exist", "run", "-n", "2", "./nosuch")
        self.write("text", "", 0o644)
        self.refused(10, "./text is not an executable file", "run", "-n", "2", "./text")
        os.mkdir(os.path.join(self.folder.name, "elsewhere"))
        self.write("here", "#!/bin/sh\n")
        self.refused(10, "./here exists", "run", "-n", "2", "here", path="/usr/bin:/bin")

    def test_missing_or_broken_launcher(self):
        self.write("prog", "#!/bin/sh\n")
        self.refused(11, "no mpirun and no mpiexec in PATH", "run", "-n", "2", "./prog", path="/nonexistent")
        self.refused(11, "launcher other not found", "run", "-n", "2", "--launcher", "other", "./prog")
        self.write("mpirun", BROKEN)
        self.refused(11, "cannot load libopen-rte", "run", "-n", "2", "./prog")

    def test_hostfiles(self):
        self.write("mpirun", OPEN_MPI)
        self.refused(10, "hostfile missing", "run", "-n", "2", "--hostfile", "missing", "echo")
        for text, message in (("node1:4\n", "hosts:1: Open MPI writes slots as \"node1 slots=4\""),
                              ("localhost slots=2\nlocalhost lots=2\n", "hosts:2: \"lots=2\" is unknown"),
                              ("localhost slots=2\nlocalhost slots=2\n", "hosts:2: localhost is listed in line 1 already"),
                              ("localhost slots=2\n\n\nlocalhost slots = 2\n", "hosts:4: localhost is listed in line 1")):
            self.write("hosts", text, 0o644)
            self.refused(10, message, "run", "-n", "2", "--hostfile", "hosts", "echo")

    def test_the_launcher_gets_the_hosts_of_the_plan(self):
        self.write("mpirun", """#!/bin/sh
if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4"; exit 0; fi
while [ "$1" != --hostfile ]; do shift; done
cat "$2"; cat "$2"
""")
        name = os.uname().nodename
        for text, handed in (("# a\nlocalhost slots=2\n", "# a\nlocalhost slots=2\n"),
                             ("# two workers\r\nlocalhost slots=2\r\n\r\n", "localhost slots=2\n"),
                             ("localhost\nlocalhost\n", "localhost slots=2\n"),
                             ("localhost slots = 3", "localhost slots=3\n"),
                             (f"{name}\n127.0.1.1\n", f"{name} slots=2\n"),
                             ("[::1] slots=2\n", "localhost slots=2\n")):
            with self.subTest(text=text):
                self.write("hosts", text, 0o644)
                result = self.zero("run", "-n", "2", "--hostfile", "hosts", "echo")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stdout, 2 * handed)
                dry = self.zero("run", "-n", "2", "--hostfile", "hosts", "--dry-run", "echo").stdout
                if handed == text:
                    self.assertTrue(dry.startswith("mpirun -n 2 --hostfile hosts "), dry)
                    continue
                # A shell that runs the printed command must give the launcher the same arguments.
                again = subprocess.run(["sh", "-c", dry], capture_output=True, text=True, cwd=self.folder.name,
                                       env={"PATH": self.folder.name + ":/usr/bin:/bin"})
                self.assertEqual(again.stdout, 2 * handed, dry)
                self.assertEqual(os.listdir(self.folder.name).count("zero-hosts"), 1)
                os.remove(os.path.join(self.folder.name, "zero-hosts"))

    def test_a_host_that_means_nothing(self):
        self.write("mpirun", OPEN_MPI)
        self.write("hosts", "localhost slots=1\nno-such-host.invalid slots=1\n", 0o644)
        arguments = ("run", "-n", "2", "--hostfile", "hosts", "echo")
        self.refused(11, "hosts:2: host no-such-host.invalid cannot be found", *arguments)
        dry = self.zero(*arguments[:-1], "--dry-run", "echo")  # may be for another cluster
        self.assertEqual(dry.returncode, 0)
        self.assertIn("host no-such-host.invalid cannot be found here", dry.stderr)
        self.assertIn(" --hostfile hosts ", dry.stdout)
        # Agents other than ssh have their own names.
        self.assertEqual(self.zero(*arguments, OMPI_MCA_plm_rsh_agent="agent").returncode, 42)

    def test_a_schedulers_variables_without_the_scheduler(self):
        self.write("mpirun", OPEN_MPI)
        slurm = {"SLURM_JOB_ID": "4711", "SLURM_NODELIST": "n001", "SLURM_TASKS_PER_NODE": "1"}
        self.refused(11, "no srun in PATH", "run", "-n", "2", "echo", **slurm)
        self.refused(11, "`unset SLURM_JOB_ID SLURM_NODELIST SLURM_TASKS_PER_NODE` starts on this machine",
                     "run", "-n", "1", "--dry-run", "echo", **slurm)
        self.refused(11, "PBS_NODEFILE does not exist here", "run", "-n", "2", "echo", PBS_JOBID="1", PBS_NODEFILE="none")
        self.write("srun", "#!/bin/sh\n")
        result = self.zero("run", "-n", "2", "--dry-run", "echo", **slurm)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("2 ranks on 1 slot: oversubscribed", result.stderr)
        self.assertIn("hosts and slots come from Slurm", result.stderr)
        self.write("nodes", "localhost\nlocalhost\n", 0o644)
        result = self.zero("run", "-n", "2", "--dry-run", "echo", PBS_JOBID="1", PBS_NODEFILE="nodes")
        self.assertIn("'localhost slots=2'", result.stdout)

    def test_restarts_in_a_slurm_job(self):
        """The hosts are those of the allocation, and srun starts a helper on each; a node that is down is left out."""
        self.write("mpirun", """#!/bin/sh
if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4"; exit 0; fi
while [ "$1" != --hostfile ]; do shift; done
sed 's/^/host /' "$2"
""")
        self.write("scontrol", '#!/bin/sh\n[ "$*" = "show hostnames n[1-2]" ] && echo localhost && echo n2\n')
        slurm = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)"}
        restarts = ("run", "--elastic", "1:4", "echo")
        self.write("srun", """#!/bin/sh
case $* in *--overlap*--nodelist=n2*) ;; *) exit 1 ;; esac
while [ "$1" != --nodelist=n2 ]; do shift; done
shift
exec "$@"
""")
        result = self.zero(*restarts, **slurm)
        self.assertEqual((result.returncode, result.stdout), (0, "host localhost slots=2\nhost n2 slots=2\n"), result.stderr)
        self.write("srun", "#!/bin/sh\nexit 1\n")
        result = self.zero(*restarts, **slurm)
        self.assertEqual((result.returncode, result.stdout), (0, "host localhost slots=2\n"), result.stderr)
        self.assertIn("zero run: host n2 is not used until it answers\nzero run: start: generation 1, with 2 ranks of 4",
                      result.stderr)
        self.refused(11, "the hosts of this Slurm job are unknown", *restarts, **{**slurm, "SLURM_TASKS_PER_NODE": "2"})

    def sleeper(self):
        process = subprocess.Popen(["sleep", "600"], env={**os.environ, "ZERO_GENERATION": "ab12:1"})
        self.addCleanup(lambda: (process.kill(), process.wait()))
        return process

    def test_an_agent_ends_the_ranks_that_were_reported_on_request_and_without_answers(self):
        """Nothing else, whatever its environment is."""
        first, second, other = self.sleeper(), self.sleeper(), self.sleeper()
        agent = subprocess.Popen([ZERO, "host-agent", "ab12"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (agent.kill(), agent.communicate()))

        def send(line):
            agent.stdin.write(line)
            agent.stdin.flush()

        def until(wanted):
            """Answers the beats until this line comes."""
            while (line := agent.stdout.readline()) != wanted:
                self.assertRegex(line, r"\A(ranks \d \d|beat \d+)\n\Z")
                if line.startswith("beat "):
                    send(line)

        self.assertEqual(agent.stdout.readline(), "ready\n")
        send(f"process 3 first {name_of(first.pid)}\nprocess 4 first {name_of(second.pid)}\n"
             f"process 5 first {name_of(other.pid)}x\n")
        until("ranks 2 2\n")
        for _ in range(8):  # longer than the lease
            until("ranks 2 2\n")
        second.kill()
        second.wait()
        until("ranks 2 1\n")
        self.assertIsNone(first.poll())
        send("end\n")
        until("ended\n")
        self.assertEqual(first.wait(10), -signal.SIGKILL)
        late = self.sleeper()
        send(f"process 0 first {name_of(late.pid)}\n")
        self.assertEqual(agent.wait(30), 0)
        self.assertEqual(late.wait(10), -signal.SIGKILL)
        self.assertIsNone(other.poll())

    def test_a_launcher_that_misses_the_end_of_its_ranks_is_ended(self):
        """None is left, or the others wait in MPI's start, or some or all never come up. With --restarts the next start
        follows."""
        up, again = up_of_rank, "[ -e again ] && exit 0\ntouch again\n"
        missed = "ranks have ended, but the launcher continues"
        cases = ((up(0, "exit 0") + up(1, "exit 0"), ["--restarts", "1"], 0, missed),
                 (up(0, "exec sleep 600") + up(1, "exit 0") + "sleep 0.5; echo zero: mark: start 0 60 >&2\n", [], 17, missed),
                 (up(0, "exec sleep 600"), [], 18, "ranks are missing"),
                 ("", [], 18, "no process of a rank has come up in time"))
        jobs = [self.job(script + again + "exec sleep 600\n", "--start-limit", "2", *options,
                         cwd=tempfile.mkdtemp(dir=self.folder.name)) for script, options, _, _ in cases]
        for (script, _, code, said), process in zip(cases, jobs):
            with self.subTest(script=script):
                err = process.communicate(timeout=60)[1]
                self.assertEqual(process.returncode, code, err)
                self.assertIn(f"zero run: {said}", err)

    def test_a_program_that_does_not_load_its_checkpoint_is_not_trained_again(self):
        process = self.job(f'{UP}if [ -e again ]; then echo zero: mark: step 1 >&2; exec sleep 600; fi; touch again\n'
                           'echo \'zero: mark: saved 40 "/saves"\' >&2; echo zero: mark: step 45 >&2; exit 3\n', "--restarts", "3")
        err = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 15, err)
        self.assertIn('and has not loaded the checkpoint of step 40 in "/saves"', err)

    def test_restarts_need_slots_and_open_mpi(self):
        self.write("hosts", "192.0.2.77\n", 0o644)
        self.write("ssh", "#!/bin/sh\n")
        self.write("mpirun", OPEN_MPI)
        self.refused(10, '--restarts needs the slots of 192.0.2.77; expected "192.0.2.77 slots=N"', "run", "--elastic",
                     "1:4", "--hostfile", "hosts", "echo")
        self.write("mpirun", '#!/bin/sh\necho "HYDRA build details:"\n')
        self.refused(11, "--restarts needs Open MPI's mpirun", "run", "--elastic", "1:4", "echo")

    def test_other_hosts_get_the_variables(self):
        self.write("mpirun", OPEN_MPI)
        self.write("hosts", "192.0.2.77 slots=2\n", 0o644)
        self.write("ssh", "#!/bin/sh\n")
        result = self.zero("run", "-n", "2", "--hostfile", "hosts", "-x", "MINE", "-x", "YOURS=1", "echo", ZERO_STRICT="1",
                           OMP_NUM_THREADS="2", MINE="x", OTHER="y")
        self.assertEqual(result.returncode, 42, result.stderr)
        for name in ("MINE", "YOURS=1", "ZERO_STRICT", "OMP_NUM_THREADS", "PATH", "ZERO_RUN_MARKS"):
            self.assertEqual(result.stdout.count(f"<-x><{name}>"), 1, result.stdout)
        self.assertNotIn("OTHER", result.stdout)
        here = self.zero("run", "-n", "2", "echo", ZERO_STRICT="1")
        self.assertNotIn("<-x>", here.stdout)

    def test_a_signal_asks_ranks_of_ours_to_stop_in_order(self):
        """SIGTERM stops ranks that report that they can stop, by SIGUSR2; a second signal, or the report that the
        program continues, ends them."""
        ready, wait = READY.removesuffix("echo ready\n"), "echo ready; while :; do sleep 0.05; done\n"
        process = self.job(f"trap 'exit 20' USR2; trap 'exit 1' TERM; {ready}{wait}")
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.terminate()
        self.assertIn("the ranks are asked to stop after this step", process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, 20)
        for again in ("process.terminate()", "goes-on"):
            goes_on = "echo zero: mark: goes-on 0 >&2" if again == "goes-on" else ":"
            process = self.job(f"trap 'echo asked; {goes_on}' USR2; trap 'exit 1' TERM; {ready}{wait}")
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.terminate()
            self.assertEqual(process.stdout.readline(), "asked\n")
            if again != "goes-on":
                process.terminate()
            err = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, 21)
            self.assertRegex(err, r"(?m)^zero run: stopped by SIGTERM, before the first step: no checkpoint was saved$")

    def test_dry_run_prints_only(self):
        self.write("mpirun", OPEN_MPI)
        result = self.zero("run", "-n", "2", "--dry-run", "echo", "--help", "-n", "3", "--", "a b")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stdout.startswith("mpirun -n 2 "), result.stdout)
        self.assertTrue(result.stdout.endswith(" echo --help -n 3 -- 'a b'\n"), result.stdout)

    def test_runs_and_passes_the_exit_code_on(self):
        self.write("mpirun", OPEN_MPI)
        result = self.zero("run", "-n", "2", "--launcher-arg=-x", "--launcher-arg=A=b c", "echo", "$HOME")
        self.assertEqual(result.returncode, 42)
        self.assertIn("<-x><A=b c></bin/sh><-c><read ", result.stdout)  # which reports the process, and becomes the program
        self.assertTrue(result.stdout.endswith('exec "$0" "$@"><echo><$HOME>'), result.stdout)
        self.assertIn("mpirun -n 2 ", result.stderr)

    def plain_environment(self):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "SLURM_"))}
        return {**environment, "PATH": self.folder.name + ":/usr/bin:/bin"}

    def job(self, script, *arguments, launcher=DOING, **keywords):
        """Starts `zero run` over a launcher that becomes this shell script; returns its process, or its result."""
        if not os.path.exists(os.path.join(self.folder.name, "mpirun")) or launcher != DOING:
            self.write("mpirun", launcher)
        folder = keywords.pop("cwd", self.folder.name)
        self.write(os.path.join(folder, "prog"), "#!/bin/sh\n" + script)
        keywords = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **keywords}
        process = subprocess.Popen([ZERO, "run", "-n", "2", *arguments, "./prog"], cwd=folder, env=self.plain_environment(),
                                   **keywords)
        self.addCleanup(lambda: (process.poll() is None and process.kill(), process.communicate()))
        return process

    def messages(self, process):
        """Returns standard error without the executed line and its notes, after the job has ended."""
        text = process.communicate(timeout=60)[1]
        return "".join(line for line in text.splitlines(True)
                       if not line.startswith(("zero run: ", "mpirun -n ")))

    def test_open_mpi_is_quiet_after_a_cause_and_heard_without_one(self):
        said = f"printf '%s' '{CAUSE}' >&2\n"
        aborts = f"printf '%s' '{ABORTED}' >&2\nexit 10\n"
        process = self.job(said + aborts)
        self.assertEqual(self.messages(process), CAUSE)
        self.assertEqual(process.returncode, 10)
        self.assertEqual(self.messages(self.job(said + aborts, "--verbose")), CAUSE + ABORTED)
        self.assertEqual(self.messages(self.job(aborts)), ABORTED)
        no_slots = self.job(f"printf '%s' '{NO_SLOTS}' >&2\nexit 1\n")
        self.assertEqual(self.messages(no_slots), NO_SLOTS)
        self.assertEqual(no_slots.returncode, 1)

    def test_lines_of_a_failure_that_does_not_end_the_job_are_shown_after_a_while(self):
        process = self.job(f"printf '%s' '{ABORTED}' >&2\nread forever\n", stdin=subprocess.PIPE)
        got = b""
        while not got.decode().endswith(ABORTED):
            got += os.read(process.stderr.fileno(), 4096)

    def test_output_is_the_programs_byte_for_byte_and_in_time(self):
        # The program continues only after its first bytes were read.
        process = self.job("printf 'out 1' ; printf 'err 1\\033[31m--' >&2; read go; printf 'out 2\\377'; "
                           "printf -- '-\\n-----\\nerr 2' >&2; exit 3\n", stdin=subprocess.PIPE, text=False)
        out = err = b""
        while not err.endswith(b"--"):
            err += os.read(process.stderr.fileno(), 4096)
        while out != b"out 1":
            out += os.read(process.stdout.fileno(), 4096)
        rest = process.communicate(b"go\n", timeout=60)
        self.assertEqual(out + rest[0], b"out 1out 2\377")
        self.assertTrue((err + rest[1]).endswith(b"err 1\033[31m---\n-----\nerr 2"), err + rest[1])
        self.assertEqual(process.returncode, 3)

    def test_nothing_is_lost_when_the_launcher_is_killed(self):
        lines = "".join(f"line {i}\n" for i in range(20000))
        process = self.job("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done >&2; kill -9 $$\n")
        self.assertEqual(self.messages(process), lines)
        self.assertEqual(process.returncode, -signal.SIGKILL)

    def test_nothing_is_lost_where_standard_error_does_not_block(self):
        ours, theirs = os.pipe()
        os.set_blocking(theirs, False)
        process = self.job("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done >&2\n", stderr=theirs)
        os.close(theirs)
        select.select([process.stdout], [], [], 0.5)  # the pipe is full until then
        with open(ours) as errors:
            text = errors.read()
        self.assertTrue(text.endswith("".join(f"line {i}\n" for i in range(20000))), text[-200:])

    def test_a_process_that_outlives_the_launcher_is_not_waited_for(self):
        process = self.job("sleep 1000 & echo $! >pid; echo last >&2; exit 5\n", stdout=subprocess.DEVNULL)
        try:
            self.assertEqual(process.wait(60), 5)
        finally:
            with open(os.path.join(self.folder.name, "pid")) as file:
                os.kill(int(file.read()), signal.SIGKILL)

    def test_a_program_that_cannot_be_asked_is_ended_by_its_launcher(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR2):
            with self.subTest(signal=number.name):
                process = self.job(f"trap 'echo caught; exit 20' TERM; {UP}echo ready; while :; do sleep 0.05; done\n")
                self.assertEqual(process.stdout.readline(), "ready\n")
                process.send_signal(number)
                self.assertEqual(process.communicate(timeout=60)[0], "caught\n")
                self.assertEqual(process.returncode, 20)
        process = self.job("trap 'echo caught; exit 3' USR1; echo ready; while :; do sleep 0.05; done\n")
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(process.communicate(timeout=60)[0], "caught\n")
        self.assertEqual(process.returncode, 3)

    def test_every_signal_at_any_moment_ends_the_job_with_a_code_of_the_table(self):
        """A launcher and ranks of any kind; the first signal comes up to a second after the start of `zero run`, and some
        kinds need a second one. What the script has started besides is left alone."""
        chance = random.Random(1)
        stops = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
        ignore = "trap '' TERM INT HUP USR2; "
        ranks = "".join(up_of_rank(rank, "while :; do sleep 0.1; done") for rank in (0, 1))
        ready = "".join(f"echo zero: mark: {word} {rank} >&2; " for word in ("start", "met", "stoppable") for rank in (0, 1))
        kinds = ["exec sleep 600", "sleep 600", ignore + "while :; do sleep 0.1; done", ranks + "wait", ranks + ignore + "wait",
                 ranks + ready + "trap 'exit 20' USR2; wait", ranks + ready + ignore + "while :; do sleep 0.1; done",
                 ranks + "exit 3", "kill -KILL $$"]
        self.write("mpirun", DOING)
        aside = subprocess.Popen(["sleep", "600"], start_new_session=True)
        self.addCleanup(lambda: (aside.kill(), aside.wait()))

        def one(number):
            kind, stop = chance_of[number]
            folder = tempfile.mkdtemp(dir=self.folder.name)
            with open(f"{folder}/prog", "w") as file:
                file.write("#!/bin/sh\nsetsid sh -c 'echo $$ >aside; exec sleep 600' >/dev/null 2>&1 &\n"
                           f"while [ ! -s aside ]; do sleep 0.01; done\n{kind}\n")
            os.chmod(f"{folder}/prog", 0o755)
            process = subprocess.Popen([ZERO, "run", "-n", "2", "--stop-limit", "2", *(["--restarts", "2"] if number % 2 else []),
                                        "./prog"], cwd=folder, env={**self.plain_environment(), "TOKEN": folder},
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            time.sleep(delays[number])
            while process.poll() is None:
                process.send_signal(stop)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    return f"{kind!r}: it still runs 30 s after {stop.name}"
            err = process.communicate()[1]
            if process.returncode not in (3, 17, 18, 20, 21, -stop, -signal.SIGKILL) or (
                    process.returncode == -stop and "zero run" in err):
                return f"{kind!r} and {stop.name}: code {process.returncode}\n{err}"
            pid = 0
            if os.path.exists(f"{folder}/aside"):
                with open(f"{folder}/aside") as file:
                    pid = int(file.read() or 0)
            deadline = time.monotonic() + 15
            while (found := processes_with(f"TOKEN={folder}")) not in ([], [pid]) and pid and time.monotonic() < deadline:
                time.sleep(0.1)
            left = [other for other in found if pid and other != pid]
            ended = pid and pid not in found
            for other in found:
                os.kill(other, signal.SIGKILL)
            return f"{kind!r}: left {left}" if left else f"{kind!r}: the process in addition to it was killed" if ended else ""

        cases = 3 * len(kinds)
        chance_of = [(kinds[i % len(kinds)], chance.choice(stops)) for i in range(cases)]
        delays = [chance.choice((0.001, 0.03, 0.1, 0.4, 1.0)) for _ in range(cases)]
        with concurrent.futures.ThreadPoolExecutor(27) as pool:
            self.assertEqual([problem for problem in pool.map(one, range(cases)) if problem], [])

    def starts(self):
        with open(os.path.join(self.folder.name, "starts")) as file:
            return file.read().count("start\n")

    ENDED_BY_SIGNALS = ("echo start >>starts; trap 'exit 9' HUP INT QUIT TERM; echo ready\n"
                        "while :; do sleep 0.05; done\n")

    def test_a_job_that_is_asked_to_end_is_not_restarted(self):
        for count, number in enumerate((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT), 1):
            with self.subTest(signal=number.name):
                process = self.job(self.ENDED_BY_SIGNALS, "--restarts", "3")
                self.assertEqual(process.stdout.readline(), "ready\n")
                process.send_signal(number)
                process.communicate(timeout=60)
                self.assertEqual(process.returncode, 21)
                self.assertEqual(self.starts(), count)

    def test_a_job_whose_terminal_asks_it_to_end_is_not_restarted(self):
        for count, key in enumerate((b"\x03", b"\x1c", None), 1):  # None: the terminal closes
            with self.subTest(key=key):
                ours, theirs = pty.openpty()
                process = self.job(self.ENDED_BY_SIGNALS, "--restarts", "3", stdin=theirs, stdout=theirs, stderr=theirs,
                                   text=False, preexec_fn=own_terminal)
                os.close(theirs)
                text = b""
                while b"ready" not in text:
                    text += os.read(ours, 4096)
                if key:
                    os.write(ours, key)
                else:
                    os.close(ours)
                self.assertEqual(process.wait(60), 21)
                self.assertEqual(self.starts(), count)
                if key:
                    os.close(ours)

    def test_a_job_under_nohup_is_restarted_after_a_hang_up(self):
        process = self.job("echo start >>starts; [ $(wc -l <starts) = 2 ] && exit 0\n"
                           "echo ready; while [ ! -e end ]; do sleep 0.05; done; exit 9\n", "--restarts", "3",
                           preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.send_signal(signal.SIGHUP)
        self.write("end", "")
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)
        self.assertEqual(self.starts(), 2)

    def test_the_launcher_ends_with_us(self):
        process = self.job("trap 'echo ended; exit 0' TERM; echo ready; while :; do sleep 0.05; done\n")
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.kill()
        self.assertEqual(process.stdout.readline(), "ended\n")

    def test_a_terminals_interrupt_asks_the_ranks_and_what_is_typed_reaches_the_launcher(self):
        ours, theirs = pty.openpty()
        process = self.job("trap 'echo interrupted' INT; trap 'echo asked; exit 20' USR2; test -t 1 && echo terminal\n"
                           f"read word; echo got $word\n{READY}while :; do sleep 0.05; done\n", stdin=theirs,
                           stdout=theirs, stderr=theirs, text=False, preexec_fn=own_terminal)
        os.close(theirs)
        text = b""

        def until(word):
            nonlocal text
            while word not in text:
                text += os.read(ours, 4096)

        until(b"terminal")
        os.write(ours, b"abc\n")
        until(b"got abc")
        until(b"ready")
        os.write(ours, b"\x03")
        until(b"asked")
        try:
            while chunk := os.read(ours, 4096):
                text += chunk
        except OSError:
            pass  # all ends are closed
        os.close(ours)
        self.assertEqual(process.wait(60), 20)
        self.assertNotIn(b"interrupted", text)

    def test_a_launcher_that_cannot_be_started(self):
        process = self.job("", "--launcher", "./mpirun", launcher="#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'mpirun (Open MPI) 4.1.4'; "
                                        "rm \"$0\"; exit 0; fi\n")
        self.assertIn("cannot start ./mpirun: No such file or directory", self.messages(process))
        self.assertEqual(process.returncode, 11)

    def test_refuses_to_nest(self):
        self.write("mpirun", OPEN_MPI)
        self.refused(11, "already a rank", "run", "-n", "2", "echo", OMPI_COMM_WORLD_SIZE="4")


if __name__ == "__main__":
    ZERO = sys.argv.pop(1)
    unittest.main()
