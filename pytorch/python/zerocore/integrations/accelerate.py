"""accelerate: the number of ranks that it has found."""

import sys

from .. import _native


def refuse_other_ranks(job):
    """Raises UsageError if accelerate has found another number of ranks: it would give all of them the same samples."""
    state = sys.modules.get("accelerate.state")
    if state is None or not state.is_initialized():
        return
    found = state.PartialState().num_processes
    if found != job.size:
        raise _native.UsageError(
            f"zerocore.initialize: accelerate has found {found} process{'es' if found > 1 else ''}, and the job has {job.size} "
            "ranks: it would split samples and write files for the wrong number. Its state was made before it could see "
            "the ranks: start the script with torchrun or `python -m zerocore.as_deepspeed script.py`, or call "
            "zerocore.as_deepspeed.install() in its first line")
