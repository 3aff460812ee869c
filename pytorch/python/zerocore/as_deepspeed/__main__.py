"""python -m zerocore.as_deepspeed [--config_file FILE] [-m] script_or_module [arguments]"""

import os
import runpy
import sys

from . import install


def main():
    arguments = sys.argv[1:]
    config_file = None
    if arguments and arguments[0].split("=")[0] == "--config_file":
        option, equals, config_file = arguments[0].partition("=")
        if not equals and len(arguments) > 1:
            config_file = arguments.pop(1)
        arguments = arguments[1:]
    as_module = bool(arguments) and arguments[0] == "-m"
    if as_module:
        arguments = arguments[1:]
    if not arguments or config_file == "":
        sys.exit(f"usage: {__doc__}")
    install(config_file)
    sys.argv = arguments
    if as_module:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        if sys.path[1:2] in ([""], [os.getcwd()]):
            del sys.path[1]  # -m has inserted the current folder, while a script has its own folder there
        sys.path.insert(1, os.path.dirname(os.path.abspath(arguments[0])))
        runpy.run_path(arguments[0], run_name="__main__")


main()
