"""Runs scripts that were written for DeepSpeed as they are: `python -m zerocore.as_deepspeed script.py ...`.

`import deepspeed` finds a package of that name, which implements DeepSpeed's names with this engine. A name that it
lacks raises an error. torch.distributed gets a gloo group, because scripts read their rank from it; the engine never
uses it."""

import zerocore_startup
from zerocore_startup import uninstall  # noqa: F401

from ..distributed import export_ranks

VERSION = "0.19.8"  # the version with these names and defaults


def install(config_file=None):
    """Does what ZEROCORE_AS_DEEPSPEED=1 does from Python's start, and sets the environment variables of DeepSpeed's launcher,
    those in which ranks meet among them; with an accelerate config file also those of `accelerate launch --config_file`.
    Collective. Raises ImportError if DeepSpeed itself has been imported."""
    zerocore_startup.install()
    export_ranks()
    if config_file is not None:
        from .accelerate_files import use_config_file
        use_config_file(config_file)
