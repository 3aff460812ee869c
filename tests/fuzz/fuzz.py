"""Runs a fuzz target for a time, from the seeds that seeds.py makes for it.

usage: fuzz.py TARGET SECONDS [CORPUS]     without CORPUS, new inputs are not kept
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import seeds


def main():
    target, seconds = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    name = os.path.basename(target)
    with tempfile.TemporaryDirectory() as folder:
        start = pathlib.Path(folder, "seeds")
        start.mkdir()
        for index, seed in enumerate(seeds.of(name)):
            (start / f"seed-{index:03}").write_bytes(seed)
        corpus = pathlib.Path(sys.argv[3]).absolute() if len(sys.argv) > 3 else pathlib.Path(folder, "corpus")
        corpus.mkdir(exist_ok=True, parents=True)
        done = subprocess.run([target, f"-max_total_time={seconds}", "-print_final_stats=1", "-timeout=10",
                               "-rss_limit_mb=2048", "-max_len=65536", str(corpus), str(start)],
                              cwd=folder, env={**os.environ, "TMPDIR": folder}, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            print(done.stderr[-8000:])
            for finding in pathlib.Path(folder).glob("*-*"):
                if finding.is_file():
                    print(finding.name, finding.read_bytes()[:2000])
            sys.exit(1)
        runs = int(re.search(r"number_of_executed_units: (\d+)", done.stderr).group(1))
        print(f"{name}: {runs} executions, {runs // max(seconds, 1)} per second, "
              f"{len(list(start.iterdir()))} seeds, {len(list(corpus.iterdir()))} inputs of new coverage")


main()
