"""python -m zerocore.as_deepspeed [-m] script_or_module [arguments]"""

import os
import runpy
import sys

from . import install


def main():
    arguments = sys.argv[1:]
    as_module = bool(arguments) and arguments[0] == "-m"
    if as_module:
        arguments = arguments[1:]
    if not arguments:
        sys.exit(f"usage: {__doc__}")
    install()
    sys.argv = arguments
    if as_module:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(1, os.path.dirname(os.path.abspath(arguments[0])))
        runpy.run_path(arguments[0], run_name="__main__")


main()
