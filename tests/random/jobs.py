"""Random settings, faults and inputs of whole jobs: the draws of random_settings, trained by train_gpt, stopped,
damaged, or passed to the tools with arguments and files that make no sense. No job may end with a code that is not in
docs/exit-codes.md or with that of an internal error, none may hang, and if a job resumes from a checkpoint, it has the
bits of the undisturbed run.

usage: jobs.py MPIEXEC TRAIN_GPT ZERO RANDOM_SETTINGS [--cases N] [--seconds T] [--seed S] [--class WORD] [--case I]
"""

import dataclasses
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1] / "faults")]
import campaign_classes  # noqa: E402
import campaign_run  # noqa: E402
import input_classes  # noqa: E402
import job_classes  # noqa: E402
from campaign_case import CLASSES  # noqa: E402
from drawn_case import DrawnCase, DrawnPrograms  # noqa: E402

OURS = (input_classes.__name__, job_classes.__name__)
# Classes of the other campaign, with their weights here.
FAULTS = {campaign_classes.launcher_ended: 6, campaign_classes.damaged_checkpoint: 8, campaign_classes.damaged_checkpoints: 4}

classes = [dataclasses.replace(c, weight=FAULTS.get(c.test, c.weight)) for c in CLASSES
           if c.test in FAULTS or c.test.__module__ in OURS]
campaign_run.main(DrawnPrograms, classes, DrawnCase, cases=500)
