"""The table, log and reports of --compare-stages agree with single runs of the same stages, with equal bits.

usage: compare.py MPIEXEC TRAIN_GPT
"""

import json
import os
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import launch  # noqa: E402

MPIEXEC, PROGRAM = launch.absolute(sys.argv[1:3])
STEPS = 6
MIB = 1 << 20
STAGE, RESHARD, SYNC = "zero_optimization.stage", "zero_core.reshard_after_forward", "zero_core.gradient_sync"
ITEMS = {**{str(stage): (f"stage {stage}", {STAGE: stage}) for stage in range(4)},
         "grad_op": ("grad_op", {STAGE: 3, RESHARD: "false"}),
         "3+nvme": ("stage 3 + nvme", {STAGE: 3, "zero_optimization.offload_optimizer.device": "nvme",
                                       "zero_optimization.offload_param.device": "nvme",
                                       "zero_optimization.offload_param.max_in_cpu": 0})}
GROUP, SUMS = "zero_core.shard_group_size", "zero_core.reduce_group_size"
ITEMS |= {"hybrid/2": ("hybrid/2", {STAGE: 3, GROUP: 2}),
          "hfsdp/2": ("hfsdp/2", {STAGE: 3, GROUP: 2, "zero_core.optimizer_over_all_ranks": "true"}),
          "3+hpz/2": ("stage 3 + hpz/2", {STAGE: 3, "zero_optimization.zero_hpz_partition_size": 2})}


def require(condition, problem):
    if not condition:
        raise launch.Failed(problem)


def arguments(keys):
    return ["--model", "tiny", "--sequence-length", 24, "--steps", STEPS, "--seed", 5, *launch.settings(keys)]


class Compared:
    """One job of --compare-stages, and its output."""

    def __init__(self, folder, ranks, items, keys):
        self.items, folder = items, pathlib.Path(folder)
        command = [PROGRAM, "--threads", "1", *map(str, arguments(keys)), "--compare-stages", ",".join(items),
                   "--report", str(folder / "report"), "--log-json", str(folder / "log.jsonl")]
        job = launch.Job(launch.mpirun(MPIEXEC, ranks, *command), folder)
        self.code = job.finish(120)
        require(self.code == 0, f"exit code {self.code}\n{job.text()}")
        self.printed = job.printed()
        self.report = json.loads((folder / "report" / "report.json").read_text())
        self.markdown = (folder / "report" / "report.md").read_text()
        self.html = (folder / "report" / "report.html").read_text()
        self.log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]

    def row(self, label):
        """Returns the cells of a row of the printed table."""
        found = re.search(rf"^ *{re.escape(label)} {{2,}}(.*)$", self.printed, re.MULTILINE)
        require(found, f"no row {label}\n{self.printed}")
        return found[1].split()


def check_against_single_run(variant, log, single):
    """Checks that memory, traffic and bits of one variant equal those of a job that runs this stage alone."""
    name = variant["name"]
    steps, summary = log[:-1], log[-1]["summary"]
    require([{key: step[key] for key in ("step", "loss_bits", "grad_norm_bits", "skipped")} for step in steps] ==
            [{key: step[key] for key in ("step", "loss_bits", "grad_norm_bits", "skipped")} for step in single.steps],
            f"{name}: the log's bits are not those of a single run")
    require(summary["digest"] == single.summary["digest"], f"{name}: another digest than a single run")
    require(int(variant["digest"], 16) == int(summary["digest"], 16), f"{name}: the report has another digest")
    require(variant["final_loss"] == single.steps[-1]["loss"], f"{name}: another final loss")
    ranks = single.summary["ranks"]
    for ours, theirs in zip(summary["ranks"], ranks):
        for key in ("memory", "in_file", "sent"):
            require(ours[key] == theirs[key], f"{name}: {key} {ours[key]}, alone {theirs[key]}")
    fullest = max(ranks, key=lambda rank: sum(use["peak"] for use in rank["memory"].values()))
    require(variant["memory"] == fullest["memory"], f"{name}: memory {variant['memory']}")
    require(variant["in_file"] == fullest["in_file"], f"{name}: in the file {variant['in_file']}")
    for operation, use in variant["wire_bytes_per_step"].items():
        for ours, theirs in (("sent", "bytes"), ("inside_node", "inside_node"), ("between_nodes", "between_nodes")):
            mean = sum(rank["sent"][operation][theirs] for rank in ranks) / len(ranks) / STEPS
            require(abs(use[ours] - mean) <= 1e-9 * mean, f"{name}: {operation} {ours} {use[ours]}, alone {mean}")


def check_measures(variant):
    beyond = variant["resident_bytes"] - variant["planned_bytes"]
    require(-MIB <= beyond <= 12 * MIB, f"{variant['name']}: {beyond / MIB:.2f} MiB resident beyond the plan")
    require(variant["peak_bytes"] == variant["planned_bytes"], f"{variant['name']}: the peak is not as planned")
    require(variant["tokens_per_second"] > 0, "no speed")
    seconds = variant["seconds_per_step"]
    require(seconds["compute"] > 0 and seconds["optimizer"] > 0 and seconds["waiting"] > 0, f"times {seconds}")


def check_file(job):
    """The last variant is offloaded to a file; all statements about it must agree."""
    variant = job.report["variants"][-1]
    rests = {name: use["peak"] for name, use in variant["in_file"].items() if use["peak"]}
    require(set(rests) == {"parameters", "gradients", "master_weights", "optimizer_state"}, f"in the file: {rests}")
    require(variant["memory"]["optimizer_state"]["peak"] == 0, "optimizer state in memory too")
    for direction, moved in (("read", sum(rests.values())), ("write", sum(rests.values()))):
        use = variant["file_per_step"][direction]
        require(0 < use["bytes"] <= 3 * moved, f"{direction}: {use['bytes']} bytes of {moved}")
    require(len(job.row("read, GiB/s")) == 1, "a speed for a variant without a file")


def check_reports(job, names):
    require([variant["name"] for variant in job.report["variants"]] == names, "other variants")
    require(job.report["bits_equal"] and all(v["bits_equal"] for v in job.report["variants"]), "bits differ")
    require(job.row("bits equal") == ["yes"] * len(names), "the table does not say that bits are equal")
    require(len(set(job.row("final loss"))) == 1, "final losses differ")
    peaks = [f"{variant['peak_bytes'] / MIB:,.2f}" for variant in job.report["variants"]]
    require(job.row("peak, all of these") == peaks, f"peaks {job.row('peak, all of these')}, not {peaks}")
    require(re.search(r"\| bits equal \|( yes \|)+\n", job.markdown), "report.md lacks the last row")
    require(all(f">{name}</th>" in job.html for name in names), "report.html lacks a column")
    require(not re.search(r"<script|https?:|src=|url\(", job.html), "report.html wants something from elsewhere")


def check(ranks, items, keys, single_keys):
    with tempfile.TemporaryDirectory() as folder:
        job = Compared(folder, ranks, items, keys)
    check_reports(job, [ITEMS[item][0] for item in items])
    if "3+nvme" in items:
        check_file(job)
    for item, variant in zip(items, job.report["variants"]):
        name, stage_keys = ITEMS[item]
        log = [{key: value for key, value in line.items() if key != "variant"} for line in job.log
               if line["variant"] == name]
        check_measures(variant)
        single = launch.train(MPIEXEC, PROGRAM, ranks, arguments({**keys, **single_keys, **stage_keys}))
        check_against_single_run(variant, log, single)
    print(f"{ranks} ranks, {','.join(items)}: as {len(items)} single runs", flush=True)


def check_groups_of_nodes():
    os.environ["ZERO_TEST_NODES"] = "0,0,1,1"
    check(4, ["3", "hybrid/2", "hfsdp/2", "3+hpz/2"], {"train_micro_batch_size_per_gpu": 1}, {SUMS: 2})
    del os.environ["ZERO_TEST_NODES"]


def main():
    try:
        check_groups_of_nodes()
        # The stages' own gradient_sync differ under accumulation, so the comparison uses one for all.
        check(2, ["0", "1", "2", "3", "grad_op"],
              {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 3}, {SYNC: "each"})
        check(3, ["3", "grad_op", "0"], {"train_micro_batch_size_per_gpu": 2, "bf16.enabled": "true",
                                         "gradient_accumulation_steps": 2, SYNC: "last"}, {})
        with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
            check(2, ["0", "3+nvme"], {"train_micro_batch_size_per_gpu": 1, "bf16.enabled": "true",
                                       "zero_optimization.offload_optimizer.nvme_path": folder,
                                       "zero_optimization.offload_param.nvme_path": folder}, {})
    except launch.Failed as failed:
        print(f"FAILED: {failed}")
        sys.exit(1)


main()
