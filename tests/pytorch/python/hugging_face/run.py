"""Runs cells one after another in the same processes: run.py FOLDER RANKS ("plain", "engine" or "installs") CELL...
A cell is KIND:KEY=VALUE,...; rank 0 prints its values as JSON. Only `use_config_file` refers to ZeroCore, and with
"installs" the call of install(), after the libraries have been imported, as in a notebook."""

import dataclasses
import json
import os
import re
import sys
import time
import traceback

import torch

import hugging_face.loop_cells
import hugging_face.plain
import hugging_face.trainer_cells
import hugging_face.trl_cells

KINDS = {"features": hugging_face.trainer_cells.features, "interrupted": hugging_face.trainer_cells.interrupted,
         "resumed": hugging_face.trainer_cells.resumed, "given": hugging_face.trainer_cells.given,
         "compiled": hugging_face.trainer_cells.compiled, "loop": hugging_face.loop_cells.loop,
         "sft": hugging_face.trl_cells.sft, "dpo": hugging_face.trl_cells.dpo, "reward": hugging_face.trl_cells.reward,
         "grpo": hugging_face.trl_cells.grpo}


@dataclasses.dataclass
class Cell:
    text: str
    kind: str
    folder: str
    ranks: int
    rank: int
    plain: bool
    stage: int | None = None
    yaml: str | None = None  # a file for accelerate
    fsdp: dict | None = None  # the Trainer's fsdp_config
    bf16: bool = False
    lora: bool = False
    schedule: str = "cosine"
    clip: float = 0.25


def cell_of(text, folder, ranks, rank, plain):
    kind, _, options = text.partition(":")
    values = dict(each.split("=") for each in options.split(",") if each)
    own = os.path.join(folder, values.get("in", text.replace("/", "_")))
    fsdp = {"1": {"version": 1, "reshard_after_forward": "full_shard"},
            "2": {"version": 2, "reshard_after_forward": True}}.get(values.get("fsdp"))
    return Cell(text, kind, own, ranks, rank, plain, int(values["stage"]) if "stage" in values else None, values.get("yaml"),
                fsdp, values.get("bf16") == "1", values.get("lora") == "1", values.get("schedule", "cosine"),
                float(values.get("clip", 0.25)))


def forget():
    """Resets the state that accelerate keeps for a whole process."""
    from accelerate.state import AcceleratorState, GradientState
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    for name in [name for name in os.environ if name.startswith(("ACCELERATE_", "FSDP_"))]:
        del os.environ[name]


def shipped(cell):
    """Returns a file that TRL ships; for fp32, or for a cell with another accumulation, a copy with those values."""
    import trl
    path = os.path.join(os.path.dirname(trl.__file__), "accelerate_configs", f"{cell.yaml}.yaml")
    accumulates = cell.kind in ("sft", "loop") and cell.yaml == "zero1"
    if cell.bf16 and not accumulates:
        return path
    with open(path, encoding="utf-8") as file:
        text = file.read()
    os.makedirs(cell.folder, exist_ok=True)
    path = os.path.join(cell.folder, f"own{cell.rank}.yaml")
    with open(path, "w", encoding="utf-8") as file:
        if accumulates:
            text = text.replace("gradient_accumulation_steps: 1", "gradient_accumulation_steps: 2")
        file.write(text if cell.bf16 else re.sub("mixed_precision:.*", "mixed_precision: 'no'", text))
    return path


def main(folder, ranks, mode, *cells):
    plain = mode == "plain"
    if mode == "installs":
        import zerocore.as_deepspeed
        zerocore.as_deepspeed.install()
    rank = int(os.environ.get("RANK", "0"))
    if not plain:
        import deepspeed
        deepspeed.init_distributed()
    for text in cells:
        if "file=" not in text:  # else the first cell, which has the settings of accelerate's launcher
            forget()
        cell = cell_of(text, folder, int(ranks) if not plain else 1, rank, plain)
        if plain:
            (hugging_face.plain.train_in_bf16 if cell.bf16 else hugging_face.plain.train_in_fp32)()
        if cell.yaml is not None and not plain:
            from zerocore.as_deepspeed.accelerate_files import use_config_file
            use_config_file(shipped(cell))
        torch.manual_seed(1)
        begin = time.monotonic()
        try:
            found = KINDS[cell.kind](cell)
        except Exception:
            if rank == 0 or os.environ.get("ALL_RANKS"):
                traceback.print_exc()
            raise
        if rank == 0:
            print("CELL " + json.dumps({"cell": text, "seconds": round(time.monotonic() - begin, 1), **found}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
