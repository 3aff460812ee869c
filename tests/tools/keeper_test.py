"""Connections without the token do not keep a keeper from its peers, and a socket of its name is the error's reason.
Usage: keeper_test.py ZERO"""

import os
import socket
import struct
import subprocess
import sys
import time
import uuid


def packed(*texts):
    body = b"".join(struct.pack("<Q", len(text)) + text.encode() for text in texts)
    return struct.pack("<Q", len(body)) + body


def received(connection):
    def exactly(count):
        data = b""
        while len(data) < count:
            piece = connection.recv(count - len(data))
            assert piece, "the keeper has closed the connection"
            data += piece
        return data

    body = exactly(struct.unpack("<Q", exactly(8))[0])
    texts = []
    while body:
        length, = struct.unpack("<Q", body[:8])
        texts.append(body[8:8 + length].decode())
        body = body[8 + length:]
    return texts


def check_taken_name():
    job = uuid.uuid4().hex
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind(f"\0zero-keeper-{job}")
        done = subprocess.run([sys.argv[1], "keeper", job], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 11 and "socket for ranks: Address already in use" in done.stderr, done


def main():
    check_taken_name()
    keeper = subprocess.Popen([sys.argv[1], "keeper", uuid.uuid4().hex, "--peers"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True)
    try:
        word, port, token, answer = keeper.stdout.readline().split()
        assert word == "port"
        strangers = []
        for turn in range(4):
            strangers += [socket.create_connection(("127.0.0.1", int(port)), timeout=60) for _ in range(100)]
            with socket.create_connection(("127.0.0.1", int(port)), timeout=60) as peer:
                peer.sendall(packed(token))
                assert received(peer) == [answer], "the token is not accepted"
                peer.sendall(packed("held", ""))
                assert received(peer) == ["ok", "0"]
            while len(os.listdir(f"/proc/{keeper.pid}/task")) > 60:  # the test's own limit ends this, if nothing does
                time.sleep(0.01)
        print("ok")
    finally:
        keeper.stdin.close()
        keeper.wait(timeout=60)


main()
