"""The examination of a job's hosts: their resources, and problems for a training run."""

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
    """Reads each host of the job, and measures the links between its ranks. Returns an Examination, on every rank.

    Collective; call it between steps. `directories` of checkpoints and offload, equal on all ranks, are each tried with
    a small file, which is removed again.
    """
    program = f"Python {platform.python_version()} with torch {torch.__version__}"
    return Examination(ranks().examine([os.fspath(directory) for directory in directories], program))
