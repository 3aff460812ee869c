"""Arguments, configs and files that make no sense, passed to train_gpt and to the commands of zero."""

import json
import os
import re
import shutil

from campaign_case import CONFIG, fault_class, launch
from campaign_classes import damage

LIMIT_S = 60
# If train_gpt is run with a huge model, it finds no memory for it, rather than training it.
SMALL_MEMORY = ("sh", "-c", 'ulimit -v 3000000; ulimit -c 0; exec "$@"', "sh")
NUMBERS = ("-1", "0", "1", "2", "3", "1.5", "-0", "1e3", "1e999", "nan", "inf", "-inf", "0x10", "2147483648",
           "9223372036854775807", "9223372036854775808", "18446744073709551616", "1 2", "1048577")
WORDS = ("", " ", "-", "--", "one", "\u0661", "a=b", "=", "[1, 2]", "{", "null", "auto", "none", "true", "cpu", "cuda",
         "fp32", "5GB", "-5", "0,3,hybrid/2", "3+qgz", "3+hpz/0", "step-1", "latest", "tiny", "gpt2-xl", "zero_optimization.stage=3",
         "zero_core.wire.gather=int4", "bf16.enabled=true", "x" * 5000, "a\nb", "../..", "7Bx32")
# Restricted, since other values would only take long.
SHORT = {"--steps": ("-1", "0", "1", "2", "1.5", "x", "", "nan", "9223372036854775808"),
         "--seconds": ("0",), "--threads": ("-1", "0", "1", "3", "1.5", "x", "", "18446744073709551616"),
         "--start-limit": ("-1", "0", "5", "nan", "x"), "-n": ("-1", "0", "1", "2", "x", "1048577")}


def odd_path(case):
    """Returns the path of a missing file, of an irregular one, or of one with the wrong content."""
    kind = case.random.choice(("missing", "folder", "pipe", "empty", "noise", "loop", "/dev/null", "/dev/zero", "/dev/full",
                               "/proc/self/mem"))
    if kind.startswith("/"):
        return kind
    path = case.folder / f"odd-{kind}"
    if path.exists() or path.is_symlink():
        return str(path)
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind != "missing":
        path.write_bytes(case.random.randbytes(3000) if kind == "noise" else b"")
    return str(path)


def options_of_help(case, command):
    """Returns the options of a command, each with whether it takes a value."""
    job = launch.Job([*command, "--help"], case.folder)
    case.require(job.finish(LIMIT_S) == 0, "no --help", job)
    found = re.findall(r"^  (?:-\w, ?)?(--?[\w-]+)(?:,--[\w-]+)*( \S.*?)?(?:  |$)", job.printed(), re.MULTILINE)
    return [(name, bool(value.strip())) for name, value in found if name != "--help"]


def odd_value(case, name):
    if name in SHORT:
        return case.random.choice(SHORT[name])
    kind = case.random.random()
    if kind < 0.3:
        return odd_path(case)
    return case.random.choice(NUMBERS if kind < 0.7 else WORDS)


def odd_arguments(case, command):
    options = options_of_help(case, command)
    given = []
    for _ in range(case.random.randint(1, 3)):
        name, takes_value = case.random.choice(options)
        given += [name, odd_value(case, name)] if takes_value or case.random.random() < 0.1 else [name]
    return given + ([odd_value(case, "")] if case.random.random() < 0.05 else [])


def ends(case, command, *codes):
    case.note(" ".join(map(repr, command)))
    case.expect_any_bits()
    job = launch.Job([*SMALL_MEMORY, *command], case.folder)
    return case.end(job, codes or range(256), messages=None, limit=LIMIT_S)


@fault_class("arguments of train_gpt", 60)
def arguments_of_training(case):
    base = ["--sequence-length", "8", "--steps", "1", "--threads", "1", "--model", "tiny"]
    given = odd_arguments(case, [case.programs.train_gpt])
    for name in base[::2]:
        if name in given:
            at = base.index(name)
            del base[at:at + 2]
    if "--steps" not in [*given, *base]:
        base += ["--steps", "1"]
    ends(case, [case.programs.train_gpt, *base, *given])


COMMANDS = {"config check": ("config.json",), "config explain": ("config.json",), "config new": ("new.json",),
            "checkpoint inspect": ("c",), "checkpoint verify": ("c",), "checkpoint export": ("c", "exported"),
            "checkpoint diff": ("c", "c"), "compare": ("report",), "run": ("-n", "1", "true")}


def copy_files(case):
    for path in case.programs.files.iterdir():
        if path.is_dir() and path.name in ("c", "report"):
            shutil.copytree(path, case.folder / path.name)
        elif path.is_file():
            shutil.copy(path, case.folder)


@fault_class("arguments of the commands of zero", 60)
def arguments_of_tools(case):
    copy_files(case)
    command = case.random.choice(sorted(COMMANDS))
    positions = [odd_value(case, "") if command != "run" and case.random.random() < 0.3 else word
                 for word in COMMANDS[command]]
    given = odd_arguments(case, [case.programs.zero, *command.split()])
    if command == "run":
        given = [word for word in given if word != "-n"] + ["--dry-run"]
        ends(case, [case.programs.zero, "run", *given, *positions])
    else:
        ends(case, [case.programs.zero, *command.split(), *positions, *given])


@fault_class("damaged files, given to the commands of zero", 40)
def damaged_files(case):
    copy_files(case)
    tag = case.random.choice(("step-1", "step-2"))
    path = case.random.choice([case.folder / "config.json", case.folder / "report/report.json",
                               *sorted((case.folder / "c" / tag).iterdir())])
    damage(case, path)
    for command in ("config check", "compare") if path.parent.name not in ("step-1", "step-2") else (
            "checkpoint inspect", "checkpoint verify", "checkpoint export", "checkpoint diff"):
        ends(case, [case.programs.zero, *command.split(), *COMMANDS[command]])


KEYS = ("zero_optimization", "stage", "offload_optimizer", "device", "optimizer", "params", "betas", "lr", "type", "fp16",
        "enabled", "loss_scale", "zero_core", "wire", "gather", "reduce_group_size", "scheduler", "train_batch_size",
        "communication_data_type", "param_groups", "activation_checkpointing", "deepspeed_config_file", "compute_environment",
        "distributed_type", "fsdp_config", "mixed_precision", "gradient_accumulation_steps", "nobody")


def odd_document(case, depth=0):
    kind = case.random.randrange(8)
    if depth < 3 and (depth == 0 or kind < 3):
        return {case.random.choice(KEYS): odd_document(case, depth + 1) for _ in range(case.random.randint(0, 4))}
    if kind == 3:
        return [odd_document(case, depth + 1) for _ in range(case.random.randint(0, 3))] if depth < 4 else []
    return case.random.choice((None, True, False, 0, 1, -1, 2, 3, 0.5, 1e30, 2**63, 2**64, "auto", "none", "cpu", "nvme",
                               "AdamW", "WarmupLR", "int8", "bf16", "", "node", "FSDP", "DEEPSPEED", "no"))


def as_text(case, value):
    """Returns JSON, or YAML of the same value: JSON with other names for true and false."""
    text = json.dumps(value, indent=case.random.choice((None, 1)))
    return text.replace("null", "~").replace("true", "yes") if case.random.random() < 0.2 else text


@fault_class("configs of random keys and values", 60)
def odd_configs(case):
    name = case.random.choice(("config.json", "config.json", "config.yaml"))
    document = odd_document(case)
    if case.random.random() < 0.7:  # one nonsensical value alone
        document = json.loads((case.programs.files / "config.json").read_text())
        section = case.random.choice([document, *(value for value in document.values() if isinstance(value, dict))])
        section[case.random.choice([*section, *KEYS])] = odd_document(case, 2)
    (case.folder / name).write_text(as_text(case, document))
    case.note((case.folder / name).read_text())
    base = [case.programs.train_gpt, "--deepspeed_config", name, "--model", "tiny", "--sequence-length", "8", "--steps", "1"]
    checked = ends(case, [case.programs.zero, "config", "check", name], 0, CONFIG)
    trained = ends(case, base)
    case.require(checked == 0 or trained == CONFIG, f"zero config check refuses what trains with code {trained}")
