"""Runs scripts that were written for DeepSpeed as they are: `python -m zerocore.as_deepspeed script.py ...`.

`import deepspeed` finds a package of that name, with DeepSpeed's names over this engine. A name that it does not have
is an error that says so. torch.distributed gets a gloo group, because scripts ask it for ranks; the engine never uses
it."""

import argparse
import functools
import os
import pathlib
import sys

from ..distributed import export_ranks
from . import hugging_face, lightning
from .accelerate_files import use_config_file

VERSION = "0.19.8"  # whose names and defaults these are


def install(config_file=None):
    """Puts the package on the path, and into the environment what DeepSpeed's launcher puts there; with a file of
    accelerate's, what `accelerate launch --config_file` does."""
    if "deepspeed" in sys.modules:
        raise ImportError("deepspeed was imported before zerocore.as_deepspeed.install()")
    sys.path.insert(0, str(pathlib.Path(__file__).parent / "shim"))
    export_ranks()
    _give_local_rank()
    if config_file is not None:
        use_config_file(config_file)
    hugging_face.adapt()
    lightning.adapt()


def _give_local_rank():
    """DeepSpeed's launcher adds --local_rank to a script's arguments. Here a parser that has this option gets it, and
    scripts without it are not told of an argument that they do not know."""
    parse = argparse.ArgumentParser.parse_known_args
    names = ("--local_rank", "--local-rank")

    @functools.wraps(parse)
    def parse_known_args(self, args=None, namespace=None):
        given = sys.argv[1:] if args is None else list(args)
        name = next((name for name in names if name in self._option_string_actions), None)
        is_given = any(word.split("=")[0] in names for word in given)
        if name is not None and args is None and not is_given:
            args = [f"{name}={os.environ['LOCAL_RANK']}", *given]
        return parse(self, args, namespace)

    argparse.ArgumentParser.parse_known_args = parse_known_args
