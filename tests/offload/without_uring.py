"""Runs a command for which io_uring is forbidden. Usage: without_uring.py COMMAND..."""

import ctypes
import os
import struct
import sys

IO_URING_SETUP = 425
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, FAIL_WITH_EPERM = 0x7FFF0000, 0x00050001
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06

program = b"".join(struct.pack("HBBI", *line) for line in (
    (LOAD_WORD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, IO_URING_SETUP), (RETURN, 0, 0, FAIL_WITH_EPERM),
    (RETURN, 0, 0, ALLOW)))
buffer = ctypes.create_string_buffer(program)


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_void_p)]


libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
described = Filter(len(program) // 8, ctypes.addressof(buffer))
if (libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
        or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(described), 0, 0) != 0):
    sys.exit("seccomp: " + os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[1], sys.argv[1:])
