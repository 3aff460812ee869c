"""`zero doctor` on this host: its ranks, a small /dev/shm, little locked memory; two hosts with a slow link and a wrong
clock.

usage: doctor_test.py ZERO MPIEXEC
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "faults"))
from multi_node_hosts import Hosts, NotAllowed  # noqa: E402

ZERO, MPIEXEC = sys.argv[1:3]


def doctor(*arguments, prefix=(), code=0, **keywords):
    done = subprocess.run([*prefix, ZERO, "doctor", *arguments], capture_output=True, text=True, timeout=120, **keywords)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def all_findings(report):
    return [finding for part in (*report["hosts"], report) for finding in part["findings"]]


def findings(*arguments, **keywords):
    return all_findings(json.loads(doctor(*arguments, "--json", **keywords)))


def found(findings, text):
    return [finding for finding in findings if text in finding["text"]]


class Doctor(unittest.TestCase):
    def test_this_host(self):
        with tempfile.TemporaryDirectory() as folder:
            text = doctor("--dir", folder, "--dir", folder + "/none")
            self.assertEqual(os.listdir(folder), [])
        for part in ("cores", "memory", "limits", "network", "disks", folder + ":", "none: No such file or directory", "of these"):
            self.assertIn(part, text)
        self.assertTrue(all(len(line) <= 240 for line in text.splitlines()))

    def test_ranks_measure_the_links_between_them(self):
        report = json.loads(doctor("-n", "2", "--json"))
        links = report["links"]
        self.assertEqual((report["transport"], report["ranks"], [link["ranks"] for link in links]), ("shm", 2, [[0, 1]]))
        self.assertGreater(links[0]["bytes_per_second"], 0)
        self.assertEqual([rank["rank"] for rank in report["hosts"][0]["ranks"]], [0, 1])
        self.assertIn("inside ", doctor("-n", "2"))

    def test_under_an_mpi_launcher_the_ranks_make_one_report(self):
        mpirun = (MPIEXEC, "--allow-run-as-root", "--oversubscribe", "-n", "3", "--bind-to", "none")
        with tempfile.TemporaryDirectory() as folder:
            text = doctor("--dir", folder, prefix=mpirun)
        for part in ("3 ranks over shm", f"{folder}: ", "of these will", "ranks 0, 1, 2 on CPU"):
            self.assertEqual(text.count(part), 1, text)
        self.assertIn("leave one of the two out", doctor("-n", "2", prefix=mpirun, code=10))
        environment = {**os.environ, "TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2"}
        self.assertIn("RANK is not set", doctor(code=10, env=environment))

    def test_wrong_command_lines(self):
        self.assertIn("needs -n", doctor("--hostfile", "hosts", code=10))
        self.assertIn("-n 0: expected", doctor("-n", "0", code=10))

    def test_a_container_with_little_memory_to_share_or_to_lock(self):
        if os.geteuid() != 0:
            self.skipTest("not root")
        small = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64m none /dev/shm && ulimit -l 64 && exec "$0" "$@"')
        all_of_it = findings(prefix=small)
        self.assertEqual([f["level"] for f in found(all_of_it, "/dev/shm: 64.00 MiB")], ["failing"])
        self.assertEqual([f["level"] for f in found(all_of_it, "64.00 KiB")], ["slow"])

    def test_two_hosts_with_a_slow_link_and_a_clock_three_seconds_off(self):
        if shutil.which("faketime") is None:
            self.skipTest("there is no faketime")
        # Only the clock of the second host is off.
        clock = 'case $(hostname) in zero-host1) exec faketime --exclude-monotonic -f +3s "$0" "$@" ;; esac; exec "$0" "$@"'
        try:
            with Hosts([1, 1], "100mbit") as hosts:
                words = hosts.mpirun(MPIEXEC, 2, "sh", "-c", clock, ZERO, "doctor", "--json")
                done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        except NotAllowed as reason:
            self.skipTest(str(reason))
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual([host["host"] for host in report["hosts"]], ["zero-host0", "zero-host1"])
        self.assertEqual([link["hosts"] for link in report["links"]], [["zero-host0", "zero-host1"]])
        self.assertEqual(report["links"][0]["transport"], "mpi")
        # Above the link's 12.5 MB/s if a delayed rank finds bytes that have arrived already.
        self.assertLess(report["links"][0]["bytes_per_second"], 60e6)
        self.assertAlmostEqual(report["links"][0]["clock_offset_seconds"], 3, delta=0.5)
        bad = [finding["text"] for finding in report["findings"] if finding["level"] == "slow"]
        self.assertEqual(len(bad), 2, bad)
        self.assertIn("the second clock is off by 3.0 s", bad[1])

    def test_a_slow_link_is_named(self):
        try:
            with Hosts([1, 1], "100mbit") as hosts:
                all_of_it = self.measured(hosts)
        except NotAllowed as reason:
            self.skipTest(str(reason))
        slow = found(all_of_it, "zero-host0 - zero-host1: ")
        self.assertEqual([finding["level"] for finding in slow], ["slow"], all_of_it)
        self.assertIn("gigabit", slow[0]["advice"])

    def measured(self, hosts):
        words = hosts.mpirun(MPIEXEC, 0)
        settings = words[words.index("--bind-to") + 2:]
        launcher, hostfile = hosts.folder / "bin" / "mpirun", hosts.folder / "hosts"
        launcher.parent.mkdir()
        mpirun = pathlib.Path(MPIEXEC).with_name("mpirun")
        launcher.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec {mpirun} --version\n'
                            f'exec {mpirun} {" ".join(settings)} "$@"\n')
        launcher.chmod(0o755)
        hostfile.write_text("".join(f"{hosts.address(i)} slots=1\n" for i in range(2)))
        path = f"{launcher.parent}:{os.environ['PATH']}"
        return findings("-n", "2", "--hostfile", str(hostfile), prefix=[*words[:words.index(MPIEXEC)], "env", f"PATH={path}"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
