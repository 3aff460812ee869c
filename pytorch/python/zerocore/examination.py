"""What the hosts of a job offer to training, and what will hurt it."""

import json
import os
import platform

import torch

from . import _native
from .ranks import ranks


class Examination:
    """The report of `zero doctor`: `data` are the values of its JSON form, str() is its text."""

    def __init__(self, report):
        self._report = report
        self.data = json.loads(report)

    def __str__(self):
        return _native.text_of_report(self._report)


def doctor(directories=()):
    """Reads each host of the job, and measures the links between its ranks; an Examination, on every rank.

    Collective, between steps. `directories`: of checkpoints and offload, each tried with a small file that is removed
    again; equal on all ranks.
    """
    program = f"Python {platform.python_version()} with torch {torch.__version__}"
    return Examination(ranks().examine([os.fspath(directory) for directory in directories], program))
