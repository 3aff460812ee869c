"""A campaign of faults against train_gpt, chosen by a seed: each has an expected end, and if the same command is
started afterwards, it reaches the bits of the undisturbed run. docs/faults.md lists the classes.

usage: campaign.py MPIEXEC TRAIN_GPT ZERO FAILING_CALLS [--cases N] [--seed S] [--class WORD] [--case I] [--jobs J]
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import campaign_adapters  # noqa: E402, F401
import campaign_classes  # noqa: E402, F401
import campaign_offload  # noqa: E402, F401
import campaign_run  # noqa: E402
from campaign_case import CLASSES, Case, Programs  # noqa: E402

campaign_run.main(Programs, CLASSES, Case, cases=300)
