"""Writes tests/data/loss_scaler.txt: runs of DeepSpeed's DynamicLossScaler over overflow histories.

usage: make_loss_scaler_goldens.py OUTPUT        (DeepSpeed 0.19.8, DS_ACCELERATOR=cpu)

One run per line: name power window hysteresis consecutive floor history scales/hysteresis...; "end" if it raises.
"""

import os
import random
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import torch  # noqa: E402
import deepspeed  # noqa: E402
from deepspeed import comm  # noqa: E402
from deepspeed.runtime.fp16 import loss_scaler  # noqa: E402


def run(power, window, hysteresis, consecutive, floor, history):
    scaler = loss_scaler.CreateLossScaler(
        torch.half, 0, True,
        {"init_scale": 2 ** power, "scale_window": window, "min_scale": floor, "delayed_shift": hysteresis,
         "consecutive_hysteresis": consecutive})
    states = []
    for step in history:
        try:
            scaler.update_scale(step == "T")
        except Exception:
            return states + ["end"]
        states.append(f"{scaler.cur_scale:.17g}/{scaler.cur_hysteresis}")
    return states


def histories():
    """Yields the vectors of the reference, then random ones with few to many overflows."""
    yield "grows", 4, 3, 2, False, 1, "F" * 9
    yield "falls", 4, 3, 2, False, 1, "TTTFFFFTT"
    yield "refills", 4, 3, 2, True, 1, "TFTFTTF"
    yield "floor", 4, 3, 2, False, 1, "T" * 6
    yield "impatient", 4, 3, 1, False, 1, "TTFFFF"
    yield "patient", 4, 3, 4, False, 1, "TTTTTT"
    yield "frozen", 4, 3, 0, False, 1, "TTTTFFFFT"
    yield "odd_floor", 4, 2, 1, False, 3, "TTTFFFFFTTT"
    yield "defaults", 16, 1000, 2, False, 1, "TT" + "F" * 2005 + "T"
    generator = random.Random(7)
    for number in range(40):
        share = generator.choice((0.05, 0.3, 0.7))
        yield (f"random{number}", generator.randint(0, 24), generator.randint(1, 12), generator.choice((1, 1, 2, 3, 5)),
               generator.random() < 0.5, generator.choice((1, 1, 2, 3, 100)),
               "".join("T" if generator.random() < share else "F" for _ in range(60)))


def main():
    comm.get_rank = lambda *_: 1  # rank 0 would print every overflow
    with open(sys.argv[1], "w", encoding="ascii") as out:
        out.write(f"# DeepSpeed {deepspeed.__version__}, by tests/optim/make_loss_scaler_goldens.py\n")
        for name, power, window, hysteresis, consecutive, floor, history in histories():
            states = run(power, window, hysteresis, consecutive, floor, history)
            out.write(f"{name} {power} {window} {hysteresis} {int(consecutive)} {floor} {history} {' '.join(states)}\n")


main()
