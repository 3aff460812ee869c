"""`zero doctor` on this host: its ranks, a small /dev/shm, little locked memory, and two hosts with a slow link.

usage: doctor_test.py ZERO MPIEXEC
"""

import json
import os
import pathlib
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


def findings(*arguments, **keywords):
    return json.loads(doctor(*arguments, "--json", **keywords))["findings"]


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
        links = json.loads(doctor("-n", "2", "--json"))["links"]
        self.assertEqual((links["transport"], len(links["hosts"]), [link["ranks"] for link in links["links"]]), ("shm", 2, [[0, 1]]))
        self.assertGreater(links["links"][0]["bytes_per_second"], 0)

    def test_wrong_command_lines(self):
        self.assertIn("needs -n", doctor("--hostfile", "hosts", code=10))
        self.assertIn("--ranks 0: expected", doctor("-n", "0", code=10))

    def test_a_container_with_little_memory_to_share_or_to_lock(self):
        if os.geteuid() != 0:
            self.skipTest("not root")
        small = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64m none /dev/shm && ulimit -l 64 && exec "$0" "$@"')
        all_of_it = findings(prefix=small)
        self.assertEqual([f["level"] for f in found(all_of_it, "/dev/shm: 64.00 MiB")], ["failing"])
        self.assertEqual([f["level"] for f in found(all_of_it, "64.00 KiB")], ["slow"])

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
