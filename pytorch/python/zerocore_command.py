"""The command `zero` of the Python package. It imports neither torch nor zerocore, so that it also plans and checks
configs in an environment without torch."""

import os
import pathlib
import sys


def main():
    """Becomes the tool, with this process's arguments."""
    program = pathlib.Path(__file__).parent / "zerocore/binaries/zero"
    try:
        os.execv(program, ["zero", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"zero: {program}: {error.strerror}; install the package zerocore again, or build the target zero")
