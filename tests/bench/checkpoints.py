"""Compares checkpoints with fio, torch.save and DeepSpeed on the same disk: medians of interleaved rounds, as a table.

usage: checkpoints.py BENCH_CHECKPOINTS MPIEXEC DIRECTORY [MILLION_ELEMENTS [ROUNDS]]

DIRECTORY decides the disk. Two ranks save the fp32 state of stage 3 (weights, two moments): 12 bytes an element. fio
writes and reads the same number of bytes with the same number of jobs, direct and synced; cold means that the page
cache was dropped, for which root is needed. ZERO_TORCH_PYTHON names a Python with torch and deepspeed; if it is not
set, those rows are left out.
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

RANKS = 2
PEER = pathlib.Path(__file__).parent / "peers/checkpoint_peers.py"
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "DS_ACCELERATOR": "cpu"}


def output(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=ENVIRONMENT, **options)
    if done.returncode != 0:
        sys.exit(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


def drop_caches():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")


class Bench:
    def __init__(self, program, mpiexec, folder, millions):
        self.program, self.mpiexec, self.folder, self.millions = program, mpiexec, pathlib.Path(folder), millions
        self.bytes = millions * 1_000_000 * 12
        self.python = os.environ.get("ZERO_TORCH_PYTHON")

    def fio(self, kind):
        text = output("fio", f"--name={kind}", f"--directory={self.folder}", f"--rw={kind}", "--bs=1M", "--direct=1",
                      f"--size={self.bytes // RANKS}", f"--numjobs={RANKS}", "--end_fsync=1", "--fallocate=native",
                      "--ioengine=psync", "--group_reporting", "--filename_format=fio.$jobnum", "--output-format=json")
        return json.loads(text)["jobs"][0][kind]["runtime"] / 1e3

    def ours(self, mode):
        target = self.folder / "ours"
        if mode != "load":
            shutil.rmtree(target, ignore_errors=True)
        text = output(self.mpiexec, "-n", RANKS, "--oversubscribe", self.program, mode, target, self.millions)
        return json.loads(text.splitlines()[-1])["seconds"]

    def peer(self, kind):
        target = self.folder / kind
        shutil.rmtree(target, ignore_errors=True)
        ranks = [subprocess.Popen([self.python, PEER, kind, target, str(self.millions)], stdout=subprocess.PIPE, text=True,
                                  stderr=subprocess.DEVNULL,
                                  env={**ENVIRONMENT, "RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": "29551",
                                       "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1"}) for rank in range(RANKS)]
        text = [process.communicate()[0] for process in ranks][0]
        shutil.rmtree(target, ignore_errors=True)
        return json.loads(text.splitlines()[-1])["seconds"]

    def round(self, with_deepspeed):
        drop_caches()
        times = {"fio write": self.fio("write")}
        drop_caches()
        times["save"] = self.ours("save")
        drop_caches()
        times["fio cold read"] = self.fio("read")
        drop_caches()
        times["load, cold"] = self.ours("load")
        times["stall of a save in the background"] = self.ours("background")
        if self.python:
            drop_caches()
            times["torch.save and fsync"] = self.peer("torch")
            if with_deepspeed:
                times["DeepSpeed save_checkpoint, stage 3, not synced"] = self.peer("deepspeed")
        return times


def main():
    program, mpiexec, folder = sys.argv[1:4]
    millions = int(sys.argv[4]) if len(sys.argv) > 4 else 64
    rounds = int(sys.argv[5]) if len(sys.argv) > 5 else 5
    with tempfile.TemporaryDirectory(dir=folder) as inner:
        bench = Bench(program, mpiexec, inner, millions)
        found = {}
        for number in range(rounds):
            times = bench.round(number < 3)
            print(json.dumps(times), file=sys.stderr, flush=True)
            for name, seconds in times.items():
                found.setdefault(name, []).append(seconds)
    digest = json.loads(output(program, "digest", "-", "64"))
    print(f"{RANKS} ranks, {bench.bytes / (1 << 20):.0f} MiB, medians of {rounds} rounds (fewest to most)\n")
    print("| what | seconds | GiB/s | range of seconds |\n|---|---|---|---|")
    for name, seconds in found.items():
        middle = statistics.median(seconds)
        print(f"| {name} | {middle:.3f} | {bench.bytes / middle / (1 << 30):.2f} | {min(seconds):.3f} to {max(seconds):.3f} |")
    middle = {name: statistics.median(seconds) for name, seconds in found.items()}
    print(f"\nsave / fio: {middle['fio write'] / middle['save']:.2f} of its speed; "
          f"load / fio: {middle['fio cold read'] / middle['load, cold']:.2f}; stall / save: "
          f"{middle['stall of a save in the background'] / middle['save']:.3f}; "
          f"digest: {digest['bytes'] / digest['seconds'] / (1 << 30):.1f} GiB/s on a core")


if __name__ == "__main__":
    main()
