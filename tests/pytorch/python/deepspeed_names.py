"""The table of `zero names` and docs/deepspeed-names.md: every public name of DeepSpeed, and whether zerocore.as_deepspeed
has it.

    deepspeed_names.py --extract TREE   writes deepspeed_names.txt from a source tree of DeepSpeed
    python -m zerocore.as_deepspeed deepspeed_names.py --write | --check   both, from that list and the package
"""

import ast
import importlib
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
LIST = HERE / "deepspeed_names.txt"
PAGE = HERE.parents[2] / "docs" / "deepspeed-names.md"
TABLE = HERE.parents[2] / "tools" / "zero" / "deepspeed_names.txt"
ENGINE = "deepspeed.runtime.engine.DeepSpeedEngine"
VERSION = "0.19.8"
MARK = "zerocore.as_deepspeed "
# DeepSpeed's own unit tests that are expected to fail: (kind, why).
SUITE = (
    ("classes and attributes of DeepSpeed's inside, such as `DeepSpeedZeroConfig`, `fp16_groups`, `averaged_gradients`, "
     "`isinstance` of its optimizers", "this engine has other ones; the names above are those of programs"),
    ("`ds_status` inside of a pass; sharded parameters of no elements", "both are those between passes, with shapes"),
    ("configurations and calls that DeepSpeed refuses: `grad_accum_dtype` at stage 0, `no_sync()` at stages 2 and 3, "
     "`overlap_comm`, parameters without gradients", "they work here"),
    ("comparisons with a model that begins rounded to 16 bits", "master weights begin unrounded; "
     "[`zero_core.round_initial_weights`](precision.md) makes these tests pass"),
    ("gradients in bf16, or with Muon, some steps on, compared with those of DDP", "DDP adds them in bf16, this engine in fp32, and "
     "Muon's products are others: they differ by a rounding"),
    ("`torch_autocast` with float16", "fp32 parameters have no loss scale here"),
    ("optimizers of the test's own", "the engine steps, and knows [these](pytorch.md#optimizer-and-schedule)"),
    ("a schedule over another optimizer, another tag on each rank, a parameter that is frozen after `initialize()`",
     "errors here"),
    ("gradients written to `p.grad`", "the engine has them; `safe_set_full_grad()` writes"),
    ("mixture-of-experts modules, inner parts of pipelines, files of DeepSpeed's checkpoints", "not there"),
)


def names_of(body, module, is_package):
    """Returns the functions and classes at the top of a module, and the names that a package imports from its own
    modules."""
    for node in body:
        if isinstance(node, (ast.If, ast.Try)):
            parts = [node.body, node.orelse, *(handler.body for handler in getattr(node, "handlers", []))]
            for part in parts:
                yield from names_of(part, module, is_package)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif is_package and isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("deepspeed")):
            yield from (alias.asname or alias.name for alias in node.names if alias.name != "*")


def extract(tree):
    lines = {}
    for path in sorted(pathlib.Path(tree, "deepspeed").rglob("*.py")):
        parts = path.relative_to(tree).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        if any(part.startswith("_") for part in module.split(".")):
            continue
        body = ast.parse(path.read_text(encoding="utf-8")).body
        lines[module] = sorted({name for name in names_of(body, module, is_package) if not name.startswith("_")})
        for node in body:
            if f"{module}.{getattr(node, 'name', '')}" == ENGINE:
                methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                lines[ENGINE] = sorted(name for name in methods if not name.startswith("_"))
    LIST.write_text("".join(f"{module}: {' '.join(names)}".rstrip() + "\n" for module, names in sorted(lines.items())),
                    encoding="utf-8")


def state_of(module, name):
    """Returns ("there", ""), ("refused", why) or ("missing", "")."""
    try:
        owner = importlib.import_module(module)
        if name is not None and name not in vars(owner):
            try:
                getattr(owner, name)
            except AttributeError:
                importlib.import_module(f"{module}.{name}")  # it may be a module below
        return "there", ""
    except (ImportError, AttributeError) as error:
        return judged(str(error))


def judged(text):
    if MARK not in text:
        raise SystemExit(f"no error of zerocore.as_deepspeed: {text}")
    if "refuses this name of DeepSpeed: " in text:
        return "refused", text.split("refuses this name of DeepSpeed: ")[1]
    return "missing", ""


def state_of_method(name):
    import zerocore
    return ("there" if hasattr(zerocore.Engine, name) else "missing"), ""


def collect():
    """Returns {state: {why or "": {module: [names]}}}; a module whose names all have one state appears as "*"."""
    found = {"there": {}, "refused": {}, "missing": {}}
    for line in LIST.read_text(encoding="utf-8").splitlines():
        module, _, names = line.partition(":")
        if module == ENGINE:
            states = {name: state_of_method(name) for name in names.split()}
        else:
            states = {name: state_of(module, name) for name in names.split()}
            states["*"] = state_of(module, None)
        for name, (state, why) in states.items():
            found[state].setdefault(why, {}).setdefault(module, []).append(name)
    return found


def table_of_tool(found):
    """Returns what tools/zero/names.cpp reads."""
    lines = []
    for state, groups in found.items():
        for why, modules in sorted(groups.items()):
            lines.append(f"{state}: {why}" if why else state)
            lines += [f"{module}: {' '.join(sorted(names))}" for module, names in sorted(modules.items())]
    return "\n".join(lines) + "\n"


def page(found):
    counts = {state: sum(len(names) for modules in groups.values() for names in modules.values())
              for state, groups in found.items()}
    lines = [
        "# Names of DeepSpeed", "",
        f"Every public name of DeepSpeed {VERSION} (modules, functions, classes, methods of its engine), as `python -m "
        "zerocore.as_deepspeed`", f"has it: {counts['there']} are there, {counts['refused']} are refused, with a reason, and "
        f"{counts['missing']} are missing.", "`zero names WORD` says it of one.",
        "A name that is refused or missing is an `AttributeError` or an `ImportError` that names it. `*` is the module itself.",
        "What DeepSpeed has from torch, as `deepspeed.comm.all_reduce`, is there under the same names.", "",
        "A test makes this page again from the package: `python -m zerocore.as_deepspeed "
        "tests/pytorch/python/deepspeed_names.py --write`.", "",
        "## There", ""]
    lines += table(found["there"].get("", {}))
    lines += ["## Refused", "", "| because | names in |", "|---|---|"]
    lines += [f"| {why} | {', '.join(f'`{one}`' for one in outermost(modules))} |" for why, modules in sorted(found["refused"].items())]
    lines += ["", "## Missing", "",
              "They are DeepSpeed's own machinery, and nothing in transformers, accelerate, TRL, peft, Lightning, LLaMA-Factory "
              "or", "axolotl imports them.", "",
        "## DeepSpeed's own unit tests", "",
        "DeepSpeed's tests of ZeRO, checkpoints, precision, schedules and `initialize()` (0.19.6, each on at most 2 CPU ranks) "
        "run", "against these names. They pass, except for those of a few kinds:", "",
        "| kind | why |", "|---|---|", *(f"| {kind} | {why} |" for kind, why in SUITE), ""]
    return "\n".join(lines).rstrip() + "\n"


def outermost(modules):
    """Returns the modules that are in no other of these modules, without "deepspeed" if there are more."""
    below = sorted(set(modules) - {"deepspeed"})
    return [module for module in below if not any(module.startswith(other + ".") for other in below)] or ["deepspeed"]


def table(modules):
    rows = [f"| `{module}` | {', '.join(f'`{name}`' for name in sorted(names))} |" for module, names in sorted(modules.items())]
    return ["| module | names |", "|---|---|", *rows, ""]


def main(arguments):
    if arguments[:1] == ["--extract"]:
        extract(arguments[1])
    elif arguments in (["--write"], ["--check"]):
        found = collect()
        for file, text in ((PAGE, page(found)), (TABLE, table_of_tool(found))):
            if arguments == ["--write"]:
                file.write_text(text, encoding="utf-8")
            elif file.read_text(encoding="utf-8") != text:
                raise SystemExit(f"{file.name} is not what the package has: write it again with --write")
        print("the page is that of the package")
    else:
        raise SystemExit(__doc__)


main(sys.argv[1:])
