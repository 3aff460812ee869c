"""Runs a command in a session of its own: session.py COMMAND...

Linux shares cores between sessions, and then within each. A rank that waits for another one yields its core, and next to
a program that computes in the same session it gets the core back after milliseconds: two tests at once took ten times as
long as one after the other. Signals are passed on, and the exit code is the command's.
"""

import ctypes
import os
import signal
import subprocess
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1


def end_with_parent():
    """If ctest kills this program, the command ends too."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(command):
    job = subprocess.Popen(command, start_new_session=True, preexec_fn=end_with_parent)
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.killpg(job.pid, number))
    code = job.wait()
    if code < 0:  # ended by a signal: so that ctest sees the same
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


sys.exit(main(sys.argv[1:]))
