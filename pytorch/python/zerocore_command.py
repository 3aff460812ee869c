"""The command `zero` of the Python package. It imports neither torch nor zerocore, so that it also plans and checks
configs in an environment without torch."""

import os
import pathlib
import sys


def is_for_tool(words):
    """Returns whether `python -m zerocore` with these arguments is the tool: with all but none, and `plan MODEL`."""
    return bool(words) and (words[0] != "plan" or len(words) == 1 or words[1].startswith("-"))


def main():
    """Becomes the tool, with this process's arguments."""
    program = pathlib.Path(__file__).parent / "zerocore/binaries/zero"
    try:
        os.execv(program, ["zero", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"zero: {program}: {error.strerror}; install the package zerocore again, or build the target zero")
