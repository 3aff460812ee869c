"""Compares ten training steps, in one of which a copy of the training state goes to memory (zero_core.peer_copies), with
ten steps without copies: turns on 2 ranks.

usage: peer_copies.py ZERO BENCH_GPT_STEP [--model NAME] [--tokens N] [--pairs N] [--stage N]
"""

import argparse
import contextlib
import math
import tempfile

from turns import DIRECTORY, Contestant, play, report, summary

EVERY, RANKS = 10, 2


def contestant(options, folder, copies):
    command = [options.zero, "run", "-n", RANKS, "--restarts", 1, options.program, DIRECTORY, "--model", options.model,
               "--sequence-length", options.tokens, "--threads", 1, "--stage", options.stage, "--checkpoint", folder,
               "--set", "train_micro_batch_size_per_gpu=1", "--set", f"zero_core.peer_copies={copies}",
               "--set", f"zero_core.peer_copies_every={EVERY}"]
    return Contestant(("without", "with")[copies], command, RANKS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zero")
    parser.add_argument("program")
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--pairs", type=int, default=8, help="for each order of starting")
    parser.add_argument("--stage", type=int, default=2)
    options = parser.parse_args()
    times = {0: [], 1: []}
    for first in (0, 1):  # the program that starts first may be slower than the other
        with contextlib.ExitStack() as stack:
            folders = [stack.enter_context(tempfile.TemporaryDirectory()) for _ in range(RANKS)]
            started = {copies: stack.enter_context(contestant(options, folders[copies], copies))
                       for copies in (first, 1 - first)}
            for program in started.values():
                program.turn(EVERY // 2)  # so that a copy is made in the middle of each later turn
            # The first two copies of a run take new memory.
            without, with_copies = play(started[0], started[1], options.pairs, warmup=2, steps=EVERY)
            times[0].append(without)
            times[1].append(with_copies)
    # The effect of the order cancels in the mean of a pair of each order.
    means = {copies: [math.sqrt(a * b) for a, b in zip(*times[copies])] for copies in times}
    report(("without copies", "with copies"), summary(means[0], means[1]))


if __name__ == "__main__":
    main()
