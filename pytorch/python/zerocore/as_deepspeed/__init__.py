"""Runs scripts that were written for DeepSpeed as they are: `python -m zerocore.as_deepspeed script.py ...`.

`import deepspeed` finds a package of that name, which implements DeepSpeed's names with this engine. A name that it
lacks raises an error. torch.distributed gets a gloo group, because scripts read their rank from it; the engine never
uses it."""

import pathlib
import sys

from ..distributed import export_ranks
from . import hugging_face, lightning
from .accelerate_files import use_config_file
from .patches import give_local_rank

VERSION = "0.19.8"  # the version with these names and defaults


def install(config_file=None):
    """Adds the package to the path, and sets the environment variables of DeepSpeed's launcher; with an accelerate
    config file also those of `accelerate launch --config_file`."""
    shim = str(pathlib.Path(__file__).parent / "shim")
    if "deepspeed" in sys.modules and not str(sys.modules["deepspeed"].__file__).startswith(shim):
        raise ImportError("deepspeed was imported before zerocore.as_deepspeed.install()")
    if shim not in sys.path:
        sys.path.insert(0, shim)
    export_ranks()
    give_local_rank()
    if config_file is not None:
        use_config_file(config_file)
    hugging_face.adapt()
    lightning.adapt()
