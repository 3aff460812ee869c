"""Makes docs/idioms.md from the cells that idioms/run.py prints: the effect of each idiom of training scripts at
each stage."""

import ast
import os
import pathlib

IDIOMS = pathlib.Path(__file__).parent / "idioms"
PAGE = pathlib.Path(__file__).parents[3] / "docs" / "idioms.md"
STAGES = ("0", "1", "2", "3", "SHARD_GRAD_OP")
BEGIN = """# Idioms of training scripts

<!-- Made by tests/pytorch/python/python_test.py. Do not edit it; to write it anew:
     ZERO_UPDATE_GENERATED=1 ctest --test-dir build/release -R python_idioms -->

Each row is a script in [`tests/pytorch/python/idioms/`](../tests/pytorch/python/idioms/run.py), which runs with plain PyTorch
and with an engine at each stage, on 1, 2 or 3 ranks (all of them, of all rows, in a longer test).

- *works*: the values of plain PyTorch, to 1e-6 in fp32, and the same bits at all stages.
- *error*: the call, or the next step, raises an error on all ranks; the last column has a part of its text.
- *sharded: error*: the same if parameters are sharded; on one rank they are not, and it works.
- *-*: this row does not run at the stage.

"3, kept" is stage 3 with `zero_core.reshard_after_forward` false (FSDP's SHARD_GRAD_OP).
"""


def text_of(cells):
    """Returns the page for all cells of all idioms."""
    rows = {}
    for cell in sorted(cells, key=lambda cell: cell["index"]):
        rows.setdefault(cell["file"], {}).setdefault(cell["idiom"], {})[cell["stage"]] = cell
    parts = [BEGIN]
    for file in sorted(rows, key=["loops", "passes", "optimizers", "changes", "values", "constructed", "saves", "ranks", "scripts"].index):
        module = ast.parse((IDIOMS / f"{file}.py").read_text(encoding="utf-8"))
        title = ast.get_docstring(module).partition(":")[0].partition(".")[0].partition(",")[0]
        parts.append(f"\n## {title}\n\n| idiom | 0 | 1 | 2 | 3 | 3, kept | the error |\n|---|---|---|---|---|---|---|\n")
        parts.extend(_row(by_stage) for by_stage in rows[file].values())
    return "".join(parts)


def is_right(cell):
    if cell["refusal"] is not None:
        return cell["error"] is not None and cell["refusal"] in cell["error"]
    return cell["error"] is None and cell["difference"] <= cell["tolerance"] and cell["equal_bits"]


def _row(by_stage):
    words, errors = [], []
    for stage in STAGES:
        cell = by_stage.get(stage)
        words.append("-" if cell is None else _word(cell))
        if cell is not None and cell["refusal"] is not None and cell["refusal"] not in errors:
            errors.append(cell["refusal"])
    title = next(iter(by_stage.values()))["title"]
    text = "; ".join(f"... {error} ..." for error in errors)
    return f"| {_escaped(title)} | {' | '.join(words)} | {_escaped(text)} |\n"


def _word(cell):
    if cell["refusal"] is None:
        return "works"
    return "sharded: error" if cell["of_sharded"] else "error"


def _escaped(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def check(cells):
    """Ends the test if the page differs; with ZERO_UPDATE_GENERATED, writes it."""
    text = text_of(cells)
    if os.environ.get("ZERO_UPDATE_GENERATED"):
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        raise SystemExit("docs/idioms.md is not what the idioms make: run ZERO_UPDATE_GENERATED=1 ctest -R python_idioms")
