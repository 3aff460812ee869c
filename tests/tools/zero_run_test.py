"""Runs the `zero` program with stand-ins for mpirun. Usage: zero_run_test.py PATH_OF_ZERO"""

import os
import subprocess
import sys
import tempfile
import unittest

ZERO = ""

OPEN_MPI = """#!/bin/sh
if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4"; exit 0; fi
printf '<%s>' "$@"
exit 42
"""
BROKEN = """#!/bin/sh
echo "cannot load libopen-rte" >&2
exit 127
"""


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
        self.refused(10, "subcommand", )
        self.refused(10, "unknown command rum", "rum")
        self.refused(10, "--ranks is required", "run", "echo")
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
        self.write("hosts", "node1:4\n", 0o644)
        self.refused(10, "node1 slots=4", "run", "-n", "2", "--hostfile", "hosts", "echo")

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
        self.assertTrue(result.stdout.endswith("<-x><A=b c><echo><$HOME>"), result.stdout)
        self.assertIn("mpirun -n 2 ", result.stderr)

    def test_refuses_to_nest(self):
        self.write("mpirun", OPEN_MPI)
        self.refused(11, "already a rank", "run", "-n", "2", "echo", OMPI_COMM_WORLD_SIZE="4")


if __name__ == "__main__":
    ZERO = sys.argv.pop(1)
    unittest.main()
