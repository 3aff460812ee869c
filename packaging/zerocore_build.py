"""The build backend that pip calls: scikit-build-core's, after a look at what is missing. Without it, the reason for a failure
comes a minute later, below CMake's lines."""

import importlib.util
import pathlib
import subprocess
import sys

from scikit_build_core import build as _build
from scikit_build_core.build import *  # noqa: F403  the other hooks


def _refuse_missing(config_settings):
    if "cmake.define.ZERO_TORCH_ROOTS" not in (config_settings or {}) and importlib.util.find_spec("torch") is None:
        sys.exit("zerocore: there is no torch to build against. pip hides that of the environment: pip install torch "
                 "scikit-build-core, then pip install --no-build-isolation . ; or make a wheel by scripts/make_wheel.sh")
    script = pathlib.Path(__file__).parents[1] / "scripts/install_dependencies.sh"
    missing = subprocess.run(["bash", str(script), "--missing-for-wheel"], capture_output=True, text=True).stdout.strip()
    if missing:
        sys.exit(f"zerocore: this machine lacks {missing}: apt-get install {missing}, or what your system has instead")


def get_requires_for_build_wheel(config_settings=None):
    _refuse_missing(config_settings)
    return _build.get_requires_for_build_wheel(config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _refuse_missing(config_settings)
    return _build.build_wheel(wheel_directory, config_settings, metadata_directory)
