"""Jobs of train_gpt for the tests: start, time limit, and processes and files that a job leaves behind.

MPIEXEC and the program come from the command line of the test that imports this.
"""

import concurrent.futures
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import uuid

# Set in the environment of every process of a job, so that it is found after its parent's death.
MARK = "ZERO_TEST_JOB"
# Names of files that Open MPI puts into its temporary folder, and may leave there when it is killed.
LAUNCHER_NAMES = ("ompi", "openmpi", "pmix", "prte", "hwloc", "psm", "vader_segment")


class Failed(Exception):
    pass


# Open MPI 4.1 writes it when a connection fails for a passing reason, which it does not try again.
OPEN_MPI_MAY_HANG = "Your Open MPI job may now hang or fail"


def run_all(tests, at_once=1):
    """Runs each (name, test) in its own folder, prints its result, and ends the program: 1 if one failed. Tests that
    mostly wait can run several `at_once`."""
    def attempt(test):
        with tempfile.TemporaryDirectory() as folder:
            try:
                return test(folder) or "ok", False
            except Failed as problem:
                return f"FAILED: {problem}", True
            except Exception:
                return f"FAILED: {traceback.format_exc()}", True

    def run(named):
        name, test = named
        begin = time.monotonic()
        result, failed = attempt(test)
        if failed and OPEN_MPI_MAY_HANG in result:
            result, failed = attempt(test)
            result += f", in a second try: in the first one Open MPI wrote {OPEN_MPI_MAY_HANG!r}"
        print(f"{name}: {result} ({time.monotonic() - begin:.1f} s)", flush=True)
        return failed

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        failures = sum(pool.map(run, tests))
    sys.exit(failures != 0)


def absolute(paths):
    """Returns absolute paths, since jobs run in their own folders; names without a folder are still searched on the
    PATH."""
    return [os.path.abspath(path) if os.sep in path else path for path in paths]


def unmount(folder):
    """Tries for some seconds: the kernel lets go of a loop device's file, or of an ended process's, after a while."""
    deadline = time.monotonic() + 20
    while (done := subprocess.run(["umount", folder], capture_output=True, text=True)).returncode != 0:
        if time.monotonic() > deadline:
            raise Failed(f"umount {folder}: {done.stderr.strip()}")
        time.sleep(0.1)


def mpirun(mpiexec, ranks, *command):
    """Returns the command line of `ranks` processes of one program."""
    return [mpiexec, "--oversubscribe", "-n", str(ranks), *command]


def mpirun_each(mpiexec, *commands):
    """Returns a command line with one rank per command."""
    line = [mpiexec, "--oversubscribe"]
    for index, command in enumerate(commands):
        line += ([":"] if index else []) + ["-n", "1", *command]
    return line


class Job:
    """A command in its own folder, with its whole output."""

    def __init__(self, command, folder, environment=None):
        self.token = uuid.uuid4().hex
        self.folder = pathlib.Path(folder)
        self.temporary = pathlib.Path(tempfile.mkdtemp(dir=self.folder, prefix="tmp"))
        self.shared_before = shared_names()
        self.output, self.errors = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.errors,
            preexec_fn=allow_core_dumps,
            # Strict mode is off, so that memory and traffic are those of the stages in every build.
            env={"ZERO_STRICT": "0", **os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                 "OMPI_MCA_mpi_yield_when_idle": "1", "TMPDIR": str(self.temporary), MARK: self.token,
                 # In the job's folder, since Open MPI leaves its segments behind when it is killed.
                 "OMPI_MCA_btl_vader_backing_directory": str(self.temporary), **(environment or {})})

    def finish(self, limit):
        """Returns the exit code; if a job takes longer, it is ended, and has failed."""
        try:
            self.code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.end()
            raise Failed(f"the job still runs after {limit} s\n{self.text()}") from None
        self.seconds = time.monotonic() - self.began
        return self.code

    def end(self):
        for pid in [self.process.pid, *self.processes()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()

    def text(self):
        return "--- stdout\n" + content(self.output) + "--- stderr\n" + content(self.errors)

    def printed(self):
        return content(self.output)

    def messages(self):
        """Returns our messages on stderr, each with the lines that belong to it."""
        messages, open_message = [], False
        for line in content(self.errors).splitlines():
            if line.startswith("zero:"):
                messages.append(line)
                open_message = True
            elif open_message and line and not line.startswith(("---", "[")):  # the launcher's own lines
                messages[-1] += "\n" + line
            else:
                open_message = False
        return messages

    def processes(self):
        """Returns the pids of the job, except the launcher's own."""
        wanted = f"{MARK}={self.token}".encode()
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == self.process.pid:
                continue
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if wanted in file.read().split(b"\0") and not is_zombie(entry):
                        found.append(int(entry))
            except OSError:
                continue
        return sorted(found)

    def ranks(self):
        """Returns pids by rank, for processes that run one of our programs."""
        pids = {}
        for pid in self.processes():
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    names = dict(item.split(b"=", 1) for item in file.read().split(b"\0") if b"=" in item)
            except OSError:
                continue
            for name in (b"OMPI_COMM_WORLD_RANK", b"PMI_RANK"):
                if name in names:
                    pids[int(names[name])] = pid
        return pids

    def leftovers(self, patience=15):
        """Returns processes, files and core dumps that the job left; [] if there are none."""
        deadline = time.monotonic() + patience
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        found = [f"process {pid}" for pid in left]
        self.end()
        found += [f"/dev/shm/{name}" for name in shared_names() - self.shared_before if not of_launcher(name)
                  and "zero" in name]
        found += [f"temporary file {name}" for name in os.listdir(self.temporary) if not of_launcher(name)]
        found += [f"core dump {path.name}" for path in self.folder.glob("core*")]
        if "core dumped" in content(self.errors):
            found.append("a core dump, says the launcher")
        return found


def is_zombie(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "Z"


def content(file):
    """Reads the whole file without a move of its position, which is shared with the process that writes to it."""
    number = file.fileno()
    return os.pread(number, os.fstat(number).st_size, 0).decode(errors="replace")


def shared_names():
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()


def of_launcher(name):
    return name.lstrip(".").startswith(LAUNCHER_NAMES)


def allow_core_dumps():
    """Allows core dumps, so that a crash is visible as a file."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))


class Run:
    """A finished training run: its steps, its summary and its output."""

    def __init__(self, log, printed):
        self.printed = printed
        lines = [json.loads(line) for line in pathlib.Path(log).read_text().splitlines()]
        if not lines or "summary" not in lines[-1]:
            raise Failed("the log has no summary")
        self.steps, self.summary = lines[:-1], lines[-1]["summary"]

    def bits(self):
        """Returns everything that must not depend on the stage."""
        steps = [(s["step"], s["loss_bits"], s["grad_norm_bits"], s["skipped"]) for s in self.steps]
        return steps, self.summary["digest"]


def settings(values):
    """Returns arguments for these keys of the config."""
    return [part for key, value in values.items() for part in ("--set", f"{key}={value}")]


def train(mpiexec, program, ranks, arguments, environment=None, limit=120, wrapper=(), threads=1):
    """Trains to the end in a temporary folder; if it fails, shows the job's output."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log.json")
        command = [*wrapper, program, "--threads", str(threads), "--log-json", log, *map(str, arguments)]
        job = Job(mpirun(mpiexec, ranks, *command), folder, environment)
        code = job.finish(limit)
        if code != 0:
            raise Failed(f"exit code {code} of {' '.join(command)}\n{job.text()}")
        return Run(log, job.printed())


def write_model(path, layers, channels, heads, vocabulary, positions):
    """Writes a config.json in Hugging Face's format."""
    pathlib.Path(path).write_text(json.dumps({
        "model_type": "gpt2", "n_layer": layers, "n_embd": channels, "n_head": heads, "vocab_size": vocabulary,
        "n_positions": positions, "activation_function": "gelu_new"}))
    return str(path)
