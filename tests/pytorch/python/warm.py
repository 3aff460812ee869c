"""Starts Python ranks by a fork of a process that has imported torch and what optimizers import: 0.05 s of a core for a
rank, not 4; 8 with transformers' Trainer.

    command(PYTHON, environment, MODULE...)    the words to put before a script or `-m MODULE`, as for Python itself; the
                                               server has imported the MODULEs too, those that are installed

These words start a small client (`warm.py rank SOCKET ...`). It sends its folder, environment and files to the server
(`warm.py serve SOCKET`), which forks the rank, and ends as the rank does. Signals to the client reach the rank, and its
death ends the rank. Ranks of one server share Python's hash seed; tests of ways to start use Python itself.
"""

import array
import atexit
import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_servers = {}


def command(python, environment, *modules):
    """Returns the words that start a rank, of a server with this environment; it ends with the calling process."""
    key = (python, modules, *sorted(environment.items()))
    if key not in _servers:
        path = os.path.join(tempfile.mkdtemp(), "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(64)
            server = subprocess.Popen([python, "-W", "ignore", __file__, "serve", str(listener.fileno()), *modules],
                                      env=environment, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])
        atexit.register(_end, server, path)
        _servers[key] = path
    return [python, "-S", "-E", __file__, "rank", _servers[key]]


def _end(server, path):
    server.stdin.close()
    server.wait()
    os.remove(path)
    os.rmdir(os.path.dirname(path))


def ask(path, words):
    """The client: returns the exit code of the rank, or ends by its signal."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    request = json.dumps({"words": words, "folder": os.getcwd(), "environment": dict(os.environ),
                          "cores": sorted(os.sched_getaffinity(0))}).encode()
    files = array.array("i", [0, 1, 2])
    connection.sendmsg([len(request).to_bytes(4, "little")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    connection.sendall(request)
    rank = receive_number(connection)
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(rank, number))
    status = receive_number(connection)
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) in PASSED_ON:
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    return os.WEXITSTATUS(status)


def receive_number(connection):
    data = connection.recv(4, socket.MSG_WAITALL)
    if len(data) < 4:
        sys.exit("warm.py: the server has ended")
    return int.from_bytes(data, "little")


def receive(connection):
    """Returns a client's request, and its files."""
    size, ancillary, *_ = connection.recvmsg(4, socket.CMSG_SPACE(12), socket.MSG_WAITALL)
    return json.loads(connection.recv(int.from_bytes(size, "little"), socket.MSG_WAITALL)), array.array("i", ancillary[0][2])


def serve(listener):
    """Forks a rank for each request until standard input ends. Returns only in the ranks, with the words of the request."""
    ranks, clients = {}, {}  # (process, connection) by the process's descriptor; the process by connection
    with selectors.DefaultSelector() as events:
        events.register(0, selectors.EVENT_READ)
        events.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in events.select():
                if key.fileobj == 0:  # the test has ended
                    for pid, _ in ranks.values():
                        os.kill(pid, signal.SIGKILL)
                    os._exit(0)
                if key.fileobj is listener:
                    connection = listener.accept()[0]
                    request, files = receive(connection)
                    pid = os.fork()
                    if pid == 0:
                        become(request, files)
                        for each in (listener, connection, *clients):
                            each.close()
                        return request["words"]
                    for file in files:
                        os.close(file)
                    connection.sendall(pid.to_bytes(4, "little"))
                    descriptor = os.pidfd_open(pid)
                    ranks[descriptor], clients[connection] = (pid, connection), pid
                    events.register(descriptor, selectors.EVENT_READ)
                    events.register(connection, selectors.EVENT_READ)
                elif key.fileobj in ranks:  # a rank has ended
                    pid, connection = ranks.pop(key.fileobj)
                    _, status = os.waitpid(pid, 0)
                    if clients.pop(connection, None) is not None:
                        events.unregister(connection)
                    events.unregister(key.fileobj)
                    os.close(key.fileobj)
                    try:
                        connection.sendall(status.to_bytes(4, "little"))
                    except OSError:
                        pass
                    connection.close()
                elif key.fileobj in clients:  # a client has ended
                    events.unregister(key.fileobj)
                    os.kill(clients.pop(key.fileobj), signal.SIGKILL)


def become(request, files):
    """Takes over a client's files, folder, environment and cores."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.sched_setaffinity(0, request["cores"])
    os.environ.clear()
    os.environ.update(request["environment"])
    numpy.random.seed()  # else all ranks have the server's
    for folder in reversed(request["environment"].get("PYTHONPATH", "").split(":")):
        if folder and folder not in sys.path:
            sys.path.insert(0, folder)


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        sys.exit(ask(sys.argv[2], sys.argv[3:]))
    import importlib
    import runpy

    import numpy
    import torch
    import torch._dynamo  # noqa: F401: imported by the first optimizer of a process

    sys.path.pop(0)  # this file's folder
    for name in sys.argv[3:]:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that ranks search and collect their own objects alone
    sys.argv = serve(socket.socket(fileno=int(sys.argv[2])))
    if sys.argv[0] == "-m":
        sys.argv.pop(0)
        runpy._run_module_as_main(sys.argv[0])
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
        with open(sys.argv[0], encoding="utf-8") as source:
            script = compile(source.read(), sys.argv[0], "exec")
        # As the program's own module, so that its objects live until Python's end, as elsewhere.
        globals().update(__file__=sys.argv[0], __doc__=None)
        exec(script)
