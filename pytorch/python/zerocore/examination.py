"""zerocore.doctor(): examines the hosts of a job, and finds problems for a training run."""

import json
import os
import platform

import torch

from . import _native
from .ranks import ranks


class Examination:
    """The report of `zero doctor`: `data` has the values of its JSON form, str() returns its text."""

    def __init__(self, report):
        self._report = report
        self.data = json.loads(report)

    def __str__(self):
        return _native.text_of_report(self._report)


def doctor(directories=()):
    """Examines each host of the job, and measures the links between its ranks. Returns an Examination, on every rank.

    Collective; call it between steps. `directories`: for checkpoints and offload, equal on all ranks; each is tested with
    a small file, which is removed.
    """
    program = f"Python {platform.python_version()} with torch {torch.__version__}"
    return Examination(ranks().examine([os.fspath(directory) for directory in directories], program))
