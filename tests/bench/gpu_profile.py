"""Profiles one step of train_gpt kernel by kernel: time, bytes of device memory, and the rate of both, by Nsight
Compute.

  gpu_profile.py TRAIN_GPT [--model gpt2] [--batch B] [--ncu NCU] [--copy-tb-s 4.3]

Kernels of one name are added up. The table has the time of each and the shortest time that its bytes allow at the rate
of a device copy (its roofline if memory bounds it): the difference can be gained, or is arithmetic. If there is no ncu,
or it may not read the counters: one line, and 77.
"""

import argparse
import collections
import csv
import pathlib
import re
import shutil
import sys
import tempfile

import gpu_run

TIME, READ, WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
SCALES = {"": 1, "byte": 1, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "nsecond": 1, "usecond": 1e3, "msecond": 1e6,
          "second": 1e9, "ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
STEPS, END_OF_STEP = 3, "decide_kernel"  # the decision about a step's gradients, once per step
NO_COUNTERS = re.compile(r".*(ERR_NVGPUCTRPERM|Failed to initialize|LibraryNotLoaded|not supported).*")
SHOWN = 40
Launch = collections.namedtuple("Launch", "name time_ns bytes")


def launches(text):
    """Returns the launches in their order, from ncu's CSV: one line per launch and metric."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        return []
    found = {}
    for row in csv.DictReader(lines[begin:]):
        if row.get("Metric Name") in (TIME, READ, WRITTEN):
            scale = SCALES[row["Metric Unit"].lower()]
            values = found.setdefault(int(row["ID"]), {"name": row["Kernel Name"]})
            values[row["Metric Name"]] = float(row["Metric Value"].replace(",", "")) * scale
    return [Launch(short(v["name"]), v.get(TIME, 0.0), v.get(READ, 0.0) + v.get(WRITTEN, 0.0))
            for _, v in sorted(found.items())]


def short(name):
    """Returns the name without parameters and namespaces; template arguments stay, since kernels of one name differ by
    them."""
    name = re.sub(r"\(anonymous namespace\)::|<unnamed>::|^void ", "", name).strip()
    if name.endswith(")"):
        depth, at = 0, len(name)
        while at > 0 and (depth or at == len(name)):
            at -= 1
            depth += (name[at] == ")") - (name[at] == "(")
        name = name[:at] or name
    return re.sub(r"\b(\w+::)+", "", name)[:72]


def one_step(found):
    """Returns the launches of the last whole step."""
    ends = [i for i, launch in enumerate(found) if END_OF_STEP in launch.name]
    if len(ends) < 2:
        sys.exit(f"{len(ends)} launches of {END_OF_STEP} among {len(found)}: no whole step was profiled")
    return found[ends[-2] + 1:ends[-1] + 1]


def tell(step, copy_rate):
    kernels = collections.defaultdict(lambda: [0, 0.0, 0.0])
    for launch in step:
        entry = kernels[launch.name]
        entry[0], entry[1], entry[2] = entry[0] + 1, entry[1] + launch.time_ns, entry[2] + launch.bytes
    print(f"{'calls':>5} {'ms':>9} {'of all':>6} {'GB':>8} {'TB/s':>6} {'at copy rate, ms':>16}  kernel")
    total = sum(launch.time_ns for launch in step)
    for name, (calls, time, moved) in sorted(kernels.items(), key=lambda item: -item[1][1])[:SHOWN]:
        print(f"{calls:5} {time * 1e-6:9.3f} {time / total:6.1%} {moved * 1e-9:8.3f} {moved / max(time, 1) * 1e-3:6.2f} "
              f"{moved / copy_rate * 1e3:16.3f}  {name}")
    for name, (_, time, _) in sorted(kernels.items(), key=lambda item: -item[1][1])[:8]:
        print(f"figure ms:{re.sub('[^A-Za-z0-9_<>,.:]', '_', name)[:48]} {time * 1e-6:.3f}")
    print(f"figure launches {len(step)}")
    print(f"figure kernels_ms {total * 1e-6:.2f}")
    print(f"figure dram_gb {sum(launch.bytes for launch in step) * 1e-9:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    gpu_run.add_options(parser)
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--copy-tb-s", type=float, default=4.3)
    args = parser.parse_args()
    if shutil.which(args.ncu) is None:
        print(f"skipped: no {args.ncu} here")
        return 77
    config = gpu_run.model_config(args.model)
    batch = args.batch or gpu_run.BATCH.get(args.model, 4)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        gpu_run.write_inputs(folder, config,
                             gpu_run.draw_tokens(config["vocab_size"], batch * gpu_run.context(config) + 1))
        output = folder / "ncu.csv"
        # The clocks stay as they are, because changing them needs a privilege, and training would run at others.
        prefix = [args.ncu, "--clock-control", "none", "--csv", "--metrics", f"{TIME},{READ},{WRITTEN}", "--log-file", output]
        try:
            gpu_run.Run(args.program, folder, gpu_run.settings(batch), STEPS, args.device,
                        any_attention=args.any_attention, prefix=prefix)
        except SystemExit:
            text = output.read_text() if output.exists() else "ncu wrote nothing"
            print(text[-3000:])
            if NO_COUNTERS.search(text):
                print(f"skipped: ncu may not read the counters: {NO_COUNTERS.search(text)[0]}")
                return 77
            raise
        text = output.read_text() if output.exists() else ""
        found = launches(text)
    if not found:
        print(f"skipped: ncu measured nothing: {text.strip()[-300:]}")
        return 77
    tell(one_step(found), 1e12 * args.copy_tb_s)
    return 0


if __name__ == "__main__":
    sys.exit(main())
