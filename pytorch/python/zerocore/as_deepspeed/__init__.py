"""Runs scripts that were written for DeepSpeed as they are: `python -m zerocore.as_deepspeed script.py ...`.

`import deepspeed` finds a package of that name, with DeepSpeed's names over this engine. A name that it does not have
is an error that says so. torch.distributed gets a gloo group, because scripts ask it for ranks; the engine never uses
it."""

import importlib.util
import pathlib
import sys

from ..distributed import export_ranks
from .patches import give_local_rank, let_accelerate_see_cpu_ranks

VERSION = "0.19.8"  # whose names and defaults these are


def install():
    """Puts the package on the path, and into the environment what DeepSpeed's launcher puts there."""
    shim = str(pathlib.Path(__file__).parent / "shim")
    if "deepspeed" in sys.modules and not str(sys.modules["deepspeed"].__file__).startswith(shim):
        raise ImportError("deepspeed was imported before zerocore.as_deepspeed.install()")
    if shim not in sys.path:
        sys.path.insert(0, shim)
    export_ranks()
    give_local_rank()
    if importlib.util.find_spec("accelerate") is not None:
        let_accelerate_see_cpu_ranks()
