"""A command on a host of multi_node_hosts.py over a TCP connection, as ssh would have it: it is cut off with the host's
link, which a pipe between two processes of this machine is not.

usage: remote_shell.py SPACE ADDRESS COMMAND    SPACE is the network namespace of the host.
"""

import os
import select
import socket
import subprocess
import sys

START_S = 3  # until the connection is there


def serve(address, command):
    """Becomes the command, with a connection as its input and output."""
    with socket.create_server((address, 0)) as server:
        server.settimeout(START_S)
        print(server.getsockname()[1], flush=True)
        connection, _ = server.accept()
    connection.settimeout(None)
    os.dup2(connection.fileno(), 0)
    os.dup2(connection.fileno(), 1)
    os.execvp("sh", ["sh", "-c", command])


def pass_on(connection):
    inputs = {0: connection.fileno(), connection.fileno(): 1}
    while connection.fileno() in inputs:
        for source in select.select(list(inputs), [], [])[0]:
            data = os.read(source, 65536)
            if not data:
                del inputs[source]
                if source == 0:
                    connection.shutdown(socket.SHUT_WR)
            while data:
                data = data[os.write(inputs[source], data):]


def main(space, address, command):
    far = subprocess.Popen(["ip", "netns", "exec", space, sys.executable, __file__, "serve", address, command],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with socket.create_connection((address, int(far.stdout.readline()))) as connection:
        try:
            pass_on(connection)
        except OSError:
            pass  # the host has gone


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
