"""Torch modules with state and parameters in files: `offload.py FOLDER`. Results are bitwise identical to training
in memory, whichever arrays are in files; a checkpoint written in the background resumes at another stage and place."""

import sys

import rank
import zerocore
from rank import config, models, say

FOLDER = sys.argv[1]
FILE = {"device": "nvme", "nvme_path": FOLDER}
PLACES = [("1", {"offload_optimizer": FILE}), ("2", {"offload_optimizer": FILE}), ("3", {"offload_param": FILE}),
          ("3", {"offload_optimizer": FILE, "offload_param": FILE})]


def make(stage, sections, **more):
    document = config(stage, **more)
    document["zero_optimization"].update(sections)
    model, loss_of = models.make("tied")
    return zerocore.initialize(model=model, config=document)[0], loss_of


def trained(stage, sections, directory=None, **more):
    """Runs two steps and saves; returns their results."""
    engine, loss_of = make(stage, sections, **more)
    outcome = rank.train(engine, loss_of, 2)
    if directory is not None:
        engine.save_checkpoint(directory)
    engine.destroy()
    return outcome


def main():
    half = {"bf16": {"enabled": True}}
    expected, expected_half = trained("3", {}), trained("3", {}, **half)
    for number, (stage, sections) in enumerate(PLACES):
        saved = f"{FOLDER}/checkpoints-{number}"
        outcome = trained(stage, sections, saved, checkpoint={"writer": {"decoupled": True}})
        assert outcome == expected, f"stage {stage}, {sections}: {outcome}, not {expected}"
        outcome = trained(stage, sections, **half)
        assert outcome == expected_half, f"stage {stage}, {sections}, bf16: {outcome}, not {expected_half}"
        for later, elsewhere in (("0", {}), PLACES[number - 1]):
            engine, _ = make(later, elsewhere)
            engine.load_checkpoint(saved)
            assert engine.digest() == expected[2], f"saved at stage {stage} with {sections}, loaded at {later}"
            engine.destroy()
    say("equal")


if __name__ == "__main__":
    main()
