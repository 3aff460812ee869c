"""Tests pipelines of the Python package over ranks: `pipelines_test.py MPIEXEC PYTHON PACKAGE CASE`."""

import collections
import sys
import tempfile

from python_test import HERE, as_deepspeed, contains, lacks, run


def compare(outputs, least):
    """Ends the test if two lines "bits NAME PRECISION DATA_RANKS ...: BITS" of one name differ. `least`: lines per name."""
    found = collections.defaultdict(dict)
    for line in "\n".join(outputs).splitlines():
        if line.startswith("bits "):
            where, _, bits = line.partition(": ")
            name = " ".join(where.split()[1:4])
            found[name][where] = bits
    for name, lines in found.items():
        if len(set(lines.values())) > 1 or len(lines) < least:
            raise SystemExit(f"{name}: {lines}")
    return found


def equal_bits():
    """P x D stages and data ranks have the bits of one stage on D ranks, with rank_independent those of one rank, and load each
    other's checkpoints."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [run(ranks, *f"grid {folder} {stages}".split(), *more, script="pipelines.py")[0]
                   for ranks, stages, more in ((4, "4 2", ()), (3, "3", ()), (2, "2 1", ()), (1, "1", ("--", "same_as_plain")))]
    found = compare(outputs, least=2)
    if {name.split()[-1] for name in found} != {"1", "2", "any"}:
        raise SystemExit(f"the numbers of data ranks are those of {sorted(found)}")
    resumed = {line for line in "\n".join(outputs).splitlines() if line.startswith("resumed")}
    if len(resumed) != 1:
        raise SystemExit(f"other bits after a load at another grid: {resumed}")


def decoders():
    if lacks("transformers"):
        return
    outputs = [run(ranks, "decoders", *stages, script="pipelines.py")[0] for ranks, stages in ((1, "01"), (2, "2"))]
    compare(outputs, least=1)


def faults():
    run(2, *"refusals -- trainer".split(), script="pipelines.py")
    _, error = run(2, "short", "1", script="pipelines.py", expect=None)
    contains(error, "the iterator of rank 1 (stage 1, data rank 0) ended before micro-batch 1 of the 3")
    told, _ = run(3, "other_samples", script="pipelines.py")
    if told.count("has read other labels") != 1:
        raise SystemExit(f"told of other samples: {told}")
    contains(told, "step 2: stage 0 has read other labels for micro-batch 0 than rank 2, of the last stage")
    _, error = run(2, "other_shape", script="pipelines.py", expect=None)
    contains(error, "in unit 6.Head, stage 1, micro-batch 1 of rank 1")


def deepspeed_script():
    """A script of DeepSpeed's tutorial, as it is."""
    losses = set()
    for ranks in (1, 2):
        out = as_deepspeed(ranks, str(HERE / "pipeline_deepspeed.py"), "-p", str(ranks))
        losses.add(tuple(line for line in out.splitlines() if line.startswith("loss ")))
    if len(losses) != 1:
        raise SystemExit(f"other losses in stages: {losses}")


if __name__ == "__main__":
    globals()[sys.argv[4]]()
