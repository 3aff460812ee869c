"""Tests faults of the copies in memory themselves (zero_core.peer_copies): damaged bytes, two lost hosts, foreign
processes, keepers that hang or end in a transfer. The training continues, from a copy or from the disk, and says which.

usage: peer_copies_faults.py MPIEXEC TRAIN_GPT ZERO [TEST...]
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from multi_node_hosts import Hosts, NotAllowed  # noqa: E402
from peer_copies import EVERY, FROM_DISK, FROM_MEMORY, RANKS, Training, hosts_of, launch  # noqa: E402

COPY_LOADED = r"^zero: checkpoint: the copy of step (\d+) in memory is loaded$"
FAR_APART = 100  # steps between two copies, in which a test can look at both generations
ATTACKS_END_S = 60  # the keeper closes each connection within 10 s, if it gets a processor


class Files(Training):
    """A training on this machine whose keeper's files the test reads and changes."""

    def __init__(self, folder, **options):
        super().__init__(folder, keys={"zero_core.peer_copies_every": FAR_APART}, **options)
        self.keeper, = self.keepers()
        self.seen = []  # ids of copies, in their order

    def generations(self):
        """Returns the paths of the keeper's files by the id of their copy."""
        found = {}
        for name in os.listdir(f"/proc/{self.keeper}/fd"):
            path = f"/proc/{self.keeper}/fd/{name}"
            try:
                if os.readlink(path).startswith("/memfd:zero copy"):
                    found.setdefault(json.loads(header(path))["__metadata__"]["save_id"], []).append(path)
            except (OSError, ValueError):
                pass  # closed, or being filled
        self.seen += [save_id for save_id in found if save_id not in self.seen]
        return found

    def stop_with_two_generations(self):
        """Stops the ranks when the keeper holds two copies. Returns the files of the older and of the newer one."""
        while True:
            known = len(self.seen)
            self.until(lambda: self.generations() and len(self.seen) > known, "another copy")
            self.until_later(FAR_APART // 4)  # in which it is committed
            self.send(signal.SIGSTOP)
            found = self.generations()
            older, newer = self.seen[-2:] if known else (None, None)
            if sorted(map(len, found.values())) == [RANKS, RANKS] and set(found) == {older, newer}:
                return found[older], found[newer]
            self.send(signal.SIGCONT)  # there is one copy, or the next one has begun


def header(path):
    with open(path, "rb") as file:
        return file.read(int.from_bytes(file.read(8), "little"))


def flip_bytes(path):
    with open(path, "r+b") as file:
        file.seek(-100, os.SEEK_END)
        data = bytes(byte ^ 1 for byte in file.read(4))
        file.seek(-100, os.SEEK_END)
        file.write(data)


def tear_header(path):
    with open(path, "r+b") as file:
        file.seek(30)
        file.write(bytes(200))


def a_damaged_copy(folder):
    """The copy before it is loaded."""
    for number, damage in enumerate((flip_bytes, tear_header)):
        own = folder / f"{number}"
        own.mkdir()
        job = Files(own)
        for restart in range(1, 6):
            _, newer = job.stop_with_two_generations()
            damage(newer[0])
            job.send(signal.SIGKILL)
            named = job.until_resumed(restart, FROM_MEMORY)
            loaded = int(re.findall(r"^zero: checkpoint: the copy of step (\d+) in memory is loaded$", job.error_text(),
                                    re.MULTILINE)[-1])
            if "the copy or checkpoint before it is loaded instead" in job.error_text():
                break  # otherwise the newer one was not committed yet
        job.expect(loaded < named, f"step {loaded} was loaded, and the damaged copy was of step {named}")
        job.expect(" (copy in memory)/shard-" in job.error_text(), "the damaged file is not named")
        job.expect_result([RANKS] * (restart + 1))


def all_copies_damaged(folder):
    """The checkpoint on disk is loaded, which must be older: the test removes the later ones."""
    first = FAR_APART - 30
    job = Files(folder, save_every=first)
    older, newer = job.stop_with_two_generations()
    for path in older + newer:
        flip_bytes(path)
    for path in (folder / "saves").glob("step-*"):
        if path.name != f"step-{first}":
            shutil.rmtree(path)
    job.send(signal.SIGKILL)
    job.until_resumed(1, r"^zero run: restart 1 of .*, from the (?:copy|checkpoint) of step (\d+)")
    job.expect(job.error_text().count("is loaded instead") in (1, 2), "the damage is not named")  # 1: not yet committed
    job.expect(f"/saves/step-{first} after step {first}\n" in job.printed(), "another checkpoint was loaded")
    job.expect_result([RANKS] * 2)


def two_neighbors_lost(folder):
    """Copies of the second host's files were on the third one: none is left, and the checkpoint on disk is loaded."""
    with Hosts([1, 1, 1]) as hosts:
        job = Training(folder, options=("--restarts", "5", "--min-ranks", "1"), hosts=hosts, save_every=20)
        job.until_saved()
        job.until_later(2 * EVERY)
        hosts.stop(1, 2)
        step = job.until_resumed(1, FROM_DISK)
        job.expect("zero run: no complete copy is left in memory" in job.error_text(), "the lost copy is not named")
        job.expect(re.search(rf"^zero run: (\d+ steps? since the checkpoint of step {step} will be repeated|no step that was "
                             r"reported is lost)$", job.error_text(), re.MULTILINE), "the lost steps are not named")
        job.expect_result([3, *job.starts()[1:2]])  # a lost host may have answered again


def a_hung_keeper(folder):
    """It hangs between two copies: a step waits for it for a limited time, and no more copies are made. After a restart
    the former copy is loaded."""
    job = Training(folder, keys={"zero_core.peer_copies_every": FAR_APART})
    keeper, = job.keepers()
    os.kill(keeper, signal.SIGSTOP)
    stopped = job.last_step()
    job.until(lambda: re.search(rf"none is made until the next start: rank \d+: the keeper of host {socket.gethostname()} has "
                                r"ended, or has not answered \"\w+\" for 10 s", job.error_text()), "the notice")
    job.until_later(2 * EVERY)
    os.kill(keeper, signal.SIGCONT)
    job.send(signal.SIGKILL, 0)
    step = job.until_resumed(1, FROM_MEMORY)
    job.expect(step <= stopped + FAR_APART, f"a copy of step {step}, and the keeper was stopped at {stopped}")
    job.expect_result([RANKS] * 2)


ATTACK = r"""
import socket, sys, time
address, port, end = sys.argv[1], int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
def text(word):
    return len(word).to_bytes(8, "little") + word
token = text(b"0" * 32)
first_words = [b"garbage " * 10000, b"\xff" * 8, token, len(token).to_bytes(8, "little") + token,
               (1 << 40).to_bytes(8, "little"), b""]
connections = []
for word in first_words * 10:
    connections.append(socket.create_connection((address, port)))
    try:
        connections[-1].sendall(word)
    except OSError:
        pass
slow = socket.create_connection((address, port))
connections.append(slow)
slow.sendall((64).to_bytes(8, "little"))
for connection in connections:
    connection.settimeout(0.2)
    while True:
        if time.monotonic() > end:
            sys.exit("a connection is still open")
        try:
            slow.send(b"x")
        except OSError:
            pass
        try:
            data = connection.recv(100)
        except TimeoutError:
            continue
        except OSError:
            break
        if not data:
            break
        sys.exit(f"a foreign process got {data}")
"""


def port_of(keeper):
    """Returns the port that it listens on."""
    inodes = sockets_of(keeper)
    return next(port for inode, port, listens, _ in connections_of(keeper) if listens and inode in inodes)


def sockets_of(pid):
    """Returns the inodes of its sockets."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found |= set(re.findall(r"^socket:\[(\d+)\]$", os.readlink(f"/proc/{pid}/fd/{name}")))
        except OSError:
            pass  # closed in the meantime
    return found


def connections_of(pid):
    """Returns inode, local port, whether it listens and the unsent bytes, of each TCP socket of its host."""
    rows = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return [(row[9], int(row[1].split(":")[1], 16), row[3] == "0A", int(row[4].split(":")[0], 16)) for row in rows]


def own_memory(pid):
    """Returns the bytes of its memory, without those shared with ranks."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(r"^RssAnon:\s+(\d+) kB$", text, re.MULTILINE).group(1))


def a_foreign_process(folder):
    """Connects to a keeper with garbage, with the token of another job, with huge lengths, silently and slowly."""
    with Hosts([1, 2]) as hosts:
        job = Training(folder, hosts=hosts)
        (first,), (keeper,) = hosts_of(job, hosts)
        before = own_memory(keeper)
        space = ["ip", "netns", "exec", hosts.spaces[1], sys.executable, "-c", ATTACK]
        with subprocess.Popen([*space, hosts.address(1), str(port_of(keeper)), str(ATTACKS_END_S)], stderr=subprocess.PIPE,
                              text=True) as attack:
            job.until_later(10 * EVERY)
            job.send(signal.SIGSTOP)  # so that the training does not end before
            _, problem = attack.communicate()
        job.expect(attack.returncode == 0, f"the attack: {problem}")
        growth = own_memory(keeper) - before
        job.send(signal.SIGCONT)
        job.until_later(4 * EVERY)
        job.expect(growth < 64 << 20, f"the keeper's memory has grown by {growth} bytes")
        job.send(signal.SIGKILL, 0)
        job.until_resumed(1, FROM_MEMORY)
        job.expect(set(job.keepers()) == {first, keeper}, "not the same keepers")
        job.expect("until the next start" not in job.error_text(), "copies were given up")
        job.expect_result([3, 3])


def until_in_transfer(job, hosts, sender, receiver):
    """Makes transfers to the receiver slow, and waits until the sender is in the middle of one."""
    sizes = job.files().values()
    hosts.slow_down(1, port_of(receiver), f"{8 * max(sizes) // 10}bit")  # a file takes 10 s

    def sends():
        own = sockets_of(sender)
        return any(unsent for inode, _, listens, unsent in connections_of(sender) if not listens and inode in own)
    job.until(sends, "a transfer")
    time.sleep(0.2)
    job.expect(sends() or "until the next start" in job.error_text(), "the transfer has ended")
    return job.last_step()


def a_host_lost_in_a_transfer(folder):
    """The other host has a part of its files: the copy before is loaded."""
    with Hosts([1, 2]) as hosts:
        job = Training(folder, options=("--restarts", "5", "--min-ranks", "1"), hosts=hosts)
        (receiver,), (sender,) = hosts_of(job, hosts)
        begun = until_in_transfer(job, hosts, sender, receiver)
        hosts.stop(1)
        step = job.until_resumed(1, FROM_MEMORY)
        job.expect(step <= begun, f"a copy of step {step}, and one was being sent at step {begun}")
        job.expect("is loaded instead" not in job.error_text(), "an incomplete copy was chosen")
        job.expect_result([3, *job.starts()[1:2]])  # a lost host may have answered again


def a_keeper_killed_in_a_transfer(folder):
    """The training goes on without copies. After a restart it loads the copy before from the other keeper."""
    with Hosts([1, 2]) as hosts:
        job = Training(folder, hosts=hosts)
        (receiver,), (sender,) = hosts_of(job, hosts)
        begun = until_in_transfer(job, hosts, sender, receiver)
        os.kill(receiver, signal.SIGKILL)
        job.until(lambda: "none is made until the next start" in job.error_text(), "the notice")
        job.until_later(2 * EVERY)
        job.send(signal.SIGKILL, 1)
        # On a slow machine `zero run` restarts before the new keeper has found the copy.
        step = job.until_resumed(1, COPY_LOADED)
        job.expect(step <= begun, f"a copy of step {step}, and one was being sent at step {begun}")
        job.expect("is loaded instead" not in job.error_text(), "an incomplete copy was chosen")
        job.expect_result([3, 3])


def main():
    tests = [a_damaged_copy, all_copies_damaged, a_hung_keeper]
    try:
        with Hosts([1, 1], rate="1gbit"):
            tests += [two_neighbors_lost, a_foreign_process, a_host_lost_in_a_transfer, a_keeper_killed_in_a_transfer]
    except NotAllowed as reason:
        print(f"skipped: no hosts of our own on this machine: {reason}")
    wanted = sys.argv[4:]
    launch.run_all([(test.__name__, lambda folder, test=test: test(pathlib.Path(folder))) for test in tests
                    if not wanted or test.__name__ in wanted])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that hosts are removed
    main()
