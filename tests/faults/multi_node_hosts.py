"""Several hosts on one machine: network namespaces on a bridge, each with its own host name, joined by links of a
chosen rate. Needs root, iproute2 and util-linux; nothing of it outlives the object.
"""

import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SUBNET = "10.213.7"

# Open MPI starts its helpers on the other hosts with `AGENT HOST COMMAND...`. Those of `zero run` live as long as their
# connection.
AGENT = """#!/bin/sh
address=$1
case $1 in
{cases}
*) echo "no such host: $1" >&2; exit 1 ;;
esac
shift
case $* in
*host-agent*) exec {python} {remote_shell} "$space" "$address" "$*" ;;
esac
exec ip netns exec "$space" unshare --uts sh -c "hostname $name; $*"
"""


class NotAllowed(Exception):
    """Raised if this machine or user cannot have namespaces."""


def command(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise NotAllowed(f"{' '.join(words)}: {done.stdout.strip()}")


class Hosts:
    """with Hosts([2, 2], "1gbit") as hosts: two hosts with two slots each. Threads may have hosts at the same time."""

    NUMBERS = itertools.count()

    def __init__(self, slots, rate=None):
        if os.geteuid() != 0:
            raise NotAllowed("not root")
        for program in ("ip", "unshare", "hostname", *(["tc"] if rate else [])):
            if shutil.which(program) is None:
                raise NotAllowed(f"there is no {program}")
        self.slots, self.rate, self.number = slots, rate, next(self.NUMBERS)
        remove_orphans()
        self.spaces, self.folder = [], None

    def name(self, index):
        return f"zero-host{index}"

    def address(self, index):
        return f"{SUBNET}.{index + 1}"

    def space(self, suffix):
        name = f"zero-{os.getpid()}-{self.number}_{suffix}"
        command("ip", "netns", "add", name)
        self.spaces.append(name)
        command("ip", "-n", name, "link", "set", "lo", "up")
        return name

    def __enter__(self):
        try:
            self.open()
        except NotAllowed:
            self.__exit__()
            raise
        return self

    def open(self):
        switch = self.space("switch")
        command("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        command("ip", "-n", switch, "link", "set", "bridge", "up")
        for index in range(len(self.slots)):
            host, port = self.space(f"host{index}"), f"port{index}"
            command("ip", "-n", host, "link", "add", "net0", "type", "veth", "peer", "name", port, "netns", switch)
            command("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
            command("ip", "-n", host, "address", "add", f"{self.address(index)}/24", "dev", "net0")
            command("ip", "-n", host, "link", "set", "net0", "up")
            if self.rate:
                command("tc", "-n", host, "qdisc", "add", "dev", "net0", "root", "tbf", "rate", self.rate, "burst",
                        "256kb", "latency", "50ms")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hosts"))
        cases = "\n".join(f"{self.address(i)}|{self.name(i)}) space={self.spaces[i + 1]}; name={self.name(i)} ;;"
                          for i in range(len(self.slots)))
        agent = self.folder / "agent"
        agent.write_text(AGENT.format(cases=cases, python=sys.executable,
                                      remote_shell=pathlib.Path(__file__).with_name("remote_shell.py")))
        agent.chmod(0o755)

    def mpirun(self, mpiexec, ranks, *program, options=(), exports=()):
        """Returns the command line, to be started on this machine."""
        hosts = ",".join(f"{self.address(i)}:{slots}" for i, slots in enumerate(self.slots))
        settings = {"plm_rsh_agent": str(self.folder / "agent"), "btl": "tcp,self", "pml": "ob1",
                    "btl_tcp_if_include": f"{SUBNET}.0/24", "oob_tcp_if_include": f"{SUBNET}.0/24",
                    "mpi_yield_when_idle": "1", "orte_keep_fqdn_hostnames": "1"}
        words = [mpiexec, "--allow-run-as-root", "--host", hosts, "-n", str(ranks), *options, "--bind-to", "none"]
        for key, value in settings.items():
            words += ["--mca", key, value]
        for variable in exports:
            words += ["-x", variable]
        start = 'hostname "$0"; exec "$@"'
        return ["ip", "netns", "exec", self.spaces[1], "unshare", "--uts", "sh", "-c", start, self.name(0), *words,
                *program]

    def zero_run(self, zero, mpiexec, *program, options=()):
        """Returns `zero run` on the first host, with all slots in use and the settings of mpirun() in its own
        launcher."""
        hostfile, launcher = self.folder / "hosts", self.folder / "mpirun"
        hostfile.write_text("".join(f"{self.address(i)} slots={slots}\n" for i, slots in enumerate(self.slots)))
        words = self.mpirun(mpiexec, 0)
        settings = words[words.index("--bind-to") + 2:]
        at = settings.index("mpi_yield_when_idle")  # `zero run` may give it too, and Open MPI takes it once
        del settings[at - 1:at + 2]
        launcher.write_text("\n".join(["#!/bin/sh", 'if [ "$1" = --version ]; then exec mpirun --version; fi',
                                       "export OMPI_MCA_mpi_yield_when_idle=1",
                                       " ".join(["exec", mpiexec, *settings, '"$@"']), ""]))
        launcher.chmod(0o755)
        return [*words[:words.index(mpiexec)], zero, "run", "-n", str(sum(self.slots)), "--launcher", str(launcher),
                "--hostfile", str(hostfile), *options, *program]

    def cut(self, index):
        """Drops all packets to and from this host, silently."""
        command("ip", "-n", self.spaces[0], "link", "set", f"port{index}", "down")

    def join(self, index):
        """Undoes cut()."""
        command("ip", "-n", self.spaces[0], "link", "set", f"port{index}", "up")

    def processes(self, index):
        return processes_in(self.spaces[index + 1])

    def programs(self, index, path):
        """Returns the pids of this program on the host."""
        def runs(pid):
            try:
                return os.path.samefile(f"/proc/{pid}/exe", path)
            except OSError:
                return False
        return [pid for pid in self.processes(index) if runs(pid)]

    def bytes_sent(self):
        """Returns the bytes sent by all hosts so far, including headers and the launcher's messages."""
        total = 0
        for space in self.spaces[1:]:
            text = subprocess.run(["ip", "netns", "exec", space, "cat", "/sys/class/net/net0/statistics/tx_bytes"],
                                  stdout=subprocess.PIPE, text=True, check=True).stdout
            total += int(text)
        return total

    def stop(self, *indices):
        """Kills all processes of the hosts at once."""
        end_processes(*(self.spaces[index + 1] for index in indices))

    def slow_down(self, index, port, rate):
        """Limits what this host sends to a port."""
        def control(*words):
            command("tc", "-n", self.spaces[index + 1], *words)
        control("qdisc", "add", "dev", "net0", "root", "handle", "1:", "htb", "default", "1")
        control("class", "add", "dev", "net0", "parent", "1:", "classid", "1:1", "htb", "rate", "10gbit")
        control("class", "add", "dev", "net0", "parent", "1:", "classid", "1:2", "htb", "rate", rate)
        control("filter", "add", "dev", "net0", "protocol", "ip", "parent", "1:", "u32", "match", "ip", "dport", str(port),
                "0xffff", "flowid", "1:2")

    def __exit__(self, *_):
        deadline = time.monotonic() + 3
        for space in self.spaces:
            while processes_in(space):
                if time.monotonic() > deadline:
                    end_processes(space)
                time.sleep(0.05)
            subprocess.run(["ip", "netns", "delete", space], check=True)
        self.spaces = []
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def processes_in(space):
    done = subprocess.run(["ip", "netns", "pids", space], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return [int(pid) for pid in done.stdout.split()]


def end_processes(*spaces):
    for pid in [pid for space in spaces for pid in processes_in(space)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def remove_orphans():
    """Removes the hosts of a test that was killed before it could."""
    # Writes an error for a host that another thread removes meanwhile.
    done = subprocess.run(["ip", "netns", "list"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for name in re.findall(r"^zero-\d+-\w+", done.stdout, re.MULTILINE):
        if not os.path.exists(f"/proc/{name.split('-')[1]}"):
            end_processes(name)
            subprocess.run(["ip", "netns", "delete", name])
