"""Bad input to train_gpt: exactly one message that names the problem, the right exit code, soon, and nothing left
behind.

usage: bad_input.py MPIEXEC TRAIN_GPT
"""

import concurrent.futures
import json
import os
import pathlib
import re
import struct
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import launch  # noqa: E402

MPIEXEC, PROGRAM = launch.absolute(sys.argv[1:3])
LIMIT_S = 15
CONFIG, TOPOLOGY, DISAGREEMENT, MEMORY, SAVE, LOAD = 10, 11, 12, 13, 14, 15
SMALL = {"--model": "tiny", "--sequence-length": 8, "--steps": 2, "--threads": 1}


class Rank(tuple):
    """The options of one rank with its own environment variables or its own wrapper command."""

    def __new__(cls, *options, **environment):
        rank = super().__new__(cls, options)
        rank.wrapper = environment.pop("wrapper", [])
        rank.environment = environment
        return rank


def completed(options):
    """Returns the options of one rank, completed with the small task's if they are not set."""
    given = {str(option).split("=")[0] for option in options}
    defaults = [f"{name}={value}" for name, value in SMALL.items() if name not in given]
    environment = [f"{name}={value}" for name, value in getattr(options, "environment", {}).items()]
    wrapper = [*getattr(options, "wrapper", []), *(["env", *environment] if environment else [])]
    return [*wrapper, PROGRAM, *defaults, *map(str, options)]


class Case:
    """One command line, or one per rank, and its expected end."""

    def __init__(self, name, code, message, *commands, environment=None, alone=False, wrapper=()):
        self.name, self.code, self.message, self.wrapper = name, code, message, wrapper
        self.commands, self.environment, self.alone = commands, environment, alone

    def line(self):
        ranks = [[*self.wrapper, *completed(options)] for options in self.commands]
        if self.alone:
            return ranks[0]
        return launch.mpirun(MPIEXEC, 2, *ranks[0]) if len(ranks) == 1 else launch.mpirun_each(MPIEXEC, *ranks)

    def check(self, folder):
        """Returns the differences from the expected end of the job, in words."""
        job = launch.Job(self.line(), folder, self.environment)
        code = job.finish(LIMIT_S)
        problems = [] if code == self.code else [f"exit code {code}, not {self.code}"]
        messages = job.messages()
        if len(messages) != bool(self.message):
            problems.append(f"{len(messages)} messages")
        problems += [f"the message does not say {part!r}" for part in self.message
                     if not any(re.search(part, message) for message in messages)]
        problems += job.leftovers()
        return problems + [job.text()] if problems else []


def with_config(document, *options):
    """Returns options for a config, which is written to its own file."""
    text = document if isinstance(document, str) else json.dumps(document)
    file = tempfile.NamedTemporaryFile("w", dir=os.getcwd(), prefix="config", suffix=".json", delete=False)
    file.write(text)
    file.close()
    return ("--deepspeed_config", file.name, *options)


def safetensors(path, tensors, cut=None, header=None):
    """Writes a file with these {name: shape} of fp32 zeros."""
    entries, offset = {}, 0
    for name, shape in tensors.items():
        size = 4
        for extent in shape:
            size *= extent
        entries[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(entries).encode() if header is None else header
    pathlib.Path(path).write_bytes((struct.pack("<Q", len(text)) + text + bytes(offset))[:cut])
    return path


def tiny_tensors(channels):
    c = channels
    tensors = {"transformer.wte.weight": [256, c], "transformer.wpe.weight": [256, c],
               "transformer.ln_f.weight": [c], "transformer.ln_f.bias": [c]}
    for layer in range(2):
        block = {"ln_1.weight": [c], "ln_1.bias": [c], "attn.c_attn.weight": [c, 3 * c], "attn.c_attn.bias": [3 * c],
                 "attn.c_proj.weight": [c, c], "attn.c_proj.bias": [c], "ln_2.weight": [c], "ln_2.bias": [c],
                 "mlp.c_fc.weight": [c, 4 * c], "mlp.c_fc.bias": [4 * c], "mlp.c_proj.weight": [4 * c, c],
                 "mlp.c_proj.bias": [c]}
        tensors |= {f"transformer.h.{layer}.{name}": shape for name, shape in block.items()}
    return tensors


def config_cases():
    good = {"train_micro_batch_size_per_gpu": 1}
    triple = {"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3}
    pathlib.Path("folder").mkdir()
    os.mkfifo("fifo")
    return [
        Case("missing config", CONFIG, ["missing.json", "No such file"], ("--deepspeed_config", "missing.json")),
        Case("config is a directory", CONFIG, ["folder", "directory"], ("--deepspeed_config", "folder")),
        Case("config is a pipe", CONFIG, ["fifo", "not a regular file"], ("--deepspeed_config", "fifo")),
        Case("empty config", CONFIG, [r"\.json", r":1"], with_config("")),
        Case("malformed JSON", CONFIG, [r"\.json:2"], with_config('{"seed": 1,\n "steps_per_print" 2}')),
        Case("binary config", CONFIG, [r"\.json"], with_config("\x00\x01\x02")),
        Case("contradictory triple", CONFIG, ["train_batch_size: 7", "train_micro_batch_size_per_gpu 2"],
             with_config(triple)),
        Case("triple for other ranks", CONFIG, ["train_batch_size", "2 ranks|ranks 2|world size"],
             with_config({**triple, "train_batch_size": 6})),
        Case("unknown key", CONFIG, ["zero_optimisation", "nearest known key: zero_optimization"],
             with_config({**good, "zero_optimisation": {"stage": 3}})),
        Case("unknown nested key", CONFIG, [r"zero_optimization\.stagee", r"zero_optimization\.stage\b"],
             with_config({**good, "zero_optimization": {"stagee": 3}})),
        Case("several problems at once", CONFIG, ["stagee", "sed", "bf17"],
             with_config({**good, "zero_optimization": {"stagee": 3}, "sed": 1, "bf17": {}})),
        Case("unknown optimizer", CONFIG, [r"optimizer\.type", "Adagrade", "AdamW"],
             with_config({**good, "optimizer": {"type": "Adagrade", "params": {"lr": 0.1}}})),
        Case("unknown schedule", CONFIG, [r"scheduler\.type", "Warmdown"],
             with_config({**good, "scheduler": {"type": "Warmdown"}})),
        Case("stage 4", CONFIG, [r"zero_optimization\.stage", "4", "0.*3"],
             with_config({**good, "zero_optimization": {"stage": 4}})),
        Case("stage 4 by option", CONFIG, [r"zero_optimization\.stage", "4"], ("--stage", 4)),
        Case("unknown key by option", CONFIG, ["sead", "seed"], ("--set", "sead=1")),
        Case("duplicate key", CONFIG, ["seed", "twice|duplicate"],
             with_config('{"train_micro_batch_size_per_gpu": 1, "seed": 1, "seed": 2}')),
    ]


def option_cases():
    pathlib.Path("a_file").write_text("text")
    compared = ("--compare-stages", "0,3")
    launch.write_model("giant.json", layers=4000, channels=16384, heads=1, vocabulary=256, positions=8)
    return [
        Case("bad option value", CONFIG, ["--steps", "many"], ("--steps", "many")),
        Case("negative steps", CONFIG, ["--steps", "-1"], ("--steps", -1)),
        Case("unknown option", CONFIG, ["--stepps"], ("--stepps", 3)),
        Case("setting without value", CONFIG, ["--set seed", "path=value"], ("--set", "seed")),
        Case("model is a pipe", CONFIG, ["--model fifo"], ("--model", "fifo")),
        Case("unknown model", CONFIG, ["gpt5", "tiny"], ("--model", "gpt5")),
        Case("too long a sequence", CONFIG, ["--sequence-length 300", "256"], ("--sequence-length", 300)),
        Case("timed products on CPUs", CONFIG, ["--product-file", "--device cuda"], ("--product-file", "products")),
        Case("separate products on CPUs", CONFIG, ["--separate-products is for GPUs"], ("--separate-products",)),
        Case("unwritable log", CONFIG, ["--log-json", "missing_folder/log.json"],
             ("--log-json", "missing_folder/log.json")),
        Case("unwritable model folder", CONFIG, ["--save-model", "a_file/model"], ("--save-model", "a_file/model")),
        Case("report folder is a file", CONFIG, ["--report a_file"], (*compared, "--report", "a_file")),
        Case("report folder takes no file", CONFIG, ["--report /proc/self"], (*compared, "--report", "/proc/self")),
        Case("a comparison's contradiction", CONFIG, ["--compare-stages", "--stage"], (*compared, "--stage", 1)),
        Case("no memory for a stage", MEMORY, ["--compare-stages, stage 3 .leave it out", "GiB left"],
             (*compared, "--model", "giant.json")),
        Case("log is a pipe that nobody reads", CONFIG, ["--log-json fifo", "no process reads"], ("--log-json", "fifo")),
        Case("log on a full disk", SAVE, ["--log-json /dev/full"], ("--log-json", "/dev/full")),
        Case("model folder takes no file", CONFIG, ["/proc"], ("--save-model", "/proc")),
        Case("model folder is a file", CONFIG, ["--save-model", "a_file"], ("--save-model", "a_file")),
        Case("unknown transport", CONFIG, ["ZERO_TRANSPORT", "nonsense"], (),
             environment={"ZERO_TRANSPORT": "nonsense"}),
        Case("unknown transport on one rank", CONFIG, ["rank 1", "ZERO_TRANSPORT", "nonsense"], (),
             Rank(ZERO_TRANSPORT="nonsense")),
        Case("a limit of the start that is none, on one rank", CONFIG, ["rank 1", "ZERO_START_LIMIT", "soon"], (),
             Rank(ZERO_START_LIMIT="soon")),
        Case("a limit of the start that is none", CONFIG, ["--start-limit"], ("--start-limit", "0")),
        Case("unknown vector instructions on one rank", CONFIG, ["rank 1", "ZERO_SIMD", "sse2"], (),
             Rank(ZERO_SIMD="sse2")),
        Case("unknown vector instructions, one rank", CONFIG, ["ZERO_SIMD", "sse2"], (), alone=True,
             environment={"ZERO_SIMD": "sse2"}),
        Case("unknown executor", CONFIG, ["ZERO_EXECUTOR", "nonsense"], (), environment={"ZERO_EXECUTOR": "nonsense"}),
        Case("another transport on one rank", TOPOLOGY,
             ["rank 0 asks for transport auto, rank 1 for mpi", "ZERO_TRANSPORT"], (), Rank(ZERO_TRANSPORT="mpi")),
        Case("unknown transport, one rank", CONFIG, ["ZERO_TRANSPORT"], (), alone=True,
             environment={"ZERO_TRANSPORT": "nonsense"}),
        Case("transport of one rank for two", TOPOLOGY, ["self", "2"], (), environment={"ZERO_TRANSPORT": "self"}),
    ]


def data_cases():
    pathlib.Path("short.txt").write_text("short")
    pathlib.Path("empty.txt").write_text("")
    pathlib.Path("zeros.txt").write_bytes(bytes(1000))
    pathlib.Path("wide.bin").write_bytes(struct.pack("<100H", *range(1000, 1100)))
    pathlib.Path("good.txt").write_text("All is well that ends well. " * 50)
    return [
        Case("missing data", CONFIG, ["--data missing.txt", "No such file"], ("--data", "missing.txt")),
        Case("data is a directory", CONFIG, ["--data folder", "directory"], ("--data", "folder")),
        Case("data is a pipe", CONFIG, ["--data fifo", "regular"], ("--data", "fifo")),
        Case("empty data", CONFIG, ["--data empty.txt", "empty"], ("--data", "empty.txt")),
        Case("too short data", CONFIG, ["short.txt", "5 tokens", r"\b9\b"], ("--data", "short.txt")),
        Case("binary data", CONFIG, ["zeros.txt", "zero bytes", "--token-dtype"], ("--data", "zeros.txt")),
        Case("tokens beyond the vocabulary", CONFIG, ["wide.bin", r"10\d\d", "256", "vocabulary"],
             ("--data", "wide.bin", "--model", tiny_model())),
        Case("data missing on one rank", CONFIG, ["rank 1", "--data missing.txt"], ("--data", "good.txt"),
             ("--data", "missing.txt")),
    ]


def tiny_model():
    return launch.write_model("tiny.json", 2, 64, 2, 256, 256)


def init_cases():
    good = safetensors("good.safetensors", tiny_tensors(64))
    size = os.path.getsize(good)
    lacking = {name: shape for name, shape in tiny_tensors(64).items() if "h.1.mlp" not in name}
    pathlib.Path("pickle.bin").write_bytes(b"\x80\x02" + bytes(100))
    cases = [Case("a good file", 0, [], ("--init", good))]
    cases += [Case(f"truncated to {cut} of {size} bytes", LOAD, ["cut.safetensors"],
                   ("--init", safetensors(f"{cut}cut.safetensors", tiny_tensors(64), cut)))
              for cut in (0, 5, 100, size // 2, size - 1)]
    return cases + [
        Case("missing file", LOAD, ["missing.safetensors", "No such file"], ("--init", "missing.safetensors")),
        Case("pipe", LOAD, ["fifo"], ("--init", "fifo")),
        Case("directory", LOAD, ["folder", "has neither model.safetensors nor its index"], ("--init", "folder")),
        Case("wrong shapes", LOAD, [r"transformer\.wte\.weight", r"\[256, 32\]", r"\[256, 64\]"],
             ("--init", safetensors("narrow.safetensors", tiny_tensors(32)))),
        Case("missing tensors", LOAD, [r"transformer\.h\.1\.mlp\.c_fc\.weight is missing"],
             ("--init", safetensors("lacking.safetensors", lacking))),
        Case("not a safetensors file", LOAD, ["pickle.bin"], ("--init", "pickle.bin")),
        Case("broken header", LOAD, ["header.safetensors"],
             ("--init", safetensors("header.safetensors", {}, header=b'{"transformer.wte.weight": '))),
        Case("huge header", LOAD, ["huge.safetensors"],
             ("--init", write("huge.safetensors", struct.pack("<Q", 1 << 62) + b"{}"))),
        Case("truncated on one rank", LOAD, ["rank 1", "cut.safetensors"], ("--init", good),
             ("--init", f"{size // 2}cut.safetensors")),
    ]


def write(path, data):
    pathlib.Path(path).write_bytes(data)
    return path


def one_bit_of(path):
    """Copies a file with one bit of its last element flipped."""
    data = bytearray(pathlib.Path(path).read_bytes())
    data[-2] ^= 1
    return write("flipped." + path, bytes(data))


def disagreement_cases():
    base = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}}
    first = with_config(base)
    spaced = with_config("\n" + json.dumps(dict(reversed(base.items())), indent=7) + "\n")
    return [
        Case("one config with other spacing and order", 0, [], first, spaced),
        Case("another learning rate", DISAGREEMENT, [r"optimizer\.params\.lr = 0\.002", r"0\.001", "rank 1", "rank 0"],
             first, with_config({**base, "optimizer": {"type": "AdamW", "params": {"lr": 0.002}}})),
        Case("another stage", DISAGREEMENT, [r"zero_optimization\.stage", "rank 1"], ("--stage", 1), ("--stage", 3)),
        Case("another seed", DISAGREEMENT, ["seed = 5", "rank 1"], ("--seed", 4), ("--seed", 5)),
        Case("another batch", DISAGREEMENT, ["train_micro_batch_size_per_gpu = 3", "rank 1"],
             ("--set", "train_micro_batch_size_per_gpu=2"), ("--set", "train_micro_batch_size_per_gpu=3")),
        Case("another precision", DISAGREEMENT, [r"bf16\.enabled", "rank 1"], (), ("--set", "bf16.enabled=true")),
        Case("another model", DISAGREEMENT, ["model", "rank 1", r"transformer\."], with_config(base),
             with_config(base, "--model", "mini")),
        Case("another vocabulary", DISAGREEMENT, [r"transformer\.wte\.weight", r"\[300, 64\]", r"\[256, 64\]"],
             with_config(base), with_config(base, "--model", launch.write_model("other.json", 2, 64, 2, 300, 256))),
        Case("another number of steps", DISAGREEMENT, ["--steps: rank 0 has 3, rank 1 has 5"], ("--steps", 3),
             ("--steps", 5)),
        Case("another sequence length", DISAGREEMENT, ["--sequence-length: rank 0 has 8, rank 1 has 16"],
             ("--sequence-length", 8), ("--sequence-length", 16)),
        Case("a log on one rank", DISAGREEMENT, ["--log-json: rank 0 has given, rank 1 has not given"],
             ("--log-json", "log.json"), ()),
        Case("logs in different places", 0, [], ("--log-json", "log.json"), ("--log-json", "other.json")),
        Case("a model saved by one rank", DISAGREEMENT, ["--save-model: rank 0 has \"\", rank 1 has saved"], (),
             ("--save-model", "saved")),
        Case("other times to save", DISAGREEMENT, ["--save-every: rank 0 has 0, rank 1 has 1"],
             ("--checkpoint", "checkpoints"), ("--checkpoint", "checkpoints", "--save-every", 1)),
        Case("two options at once", DISAGREEMENT, ["--steps: ", "--init: rank 0 has not given, rank 1 has given"],
             ("--steps", 3), ("--init", "zeros.safetensors")),
        Case("another norm in config.json", DISAGREEMENT,
             ["--model: layer_norm_epsilon: rank 0 has 1e-05, rank 1 has 0.001"], ("--model", tiny_model()),
             ("--model", write("norm.json", json.dumps({**json.loads(pathlib.Path(tiny_model()).read_text()),
                                                        "layer_norm_epsilon": 1e-3}).encode()))),
        Case("data of another length", DISAGREEMENT, ["--data, file 1: rank 0 has 1400 tokens"],
             ("--data", "good.txt"), ("--data", write("long.txt", b"All is well that ends well. " * 60))),
        Case("data of another content", DISAGREEMENT, ["--data, file 1: rank 0 has 1400 tokens, content \\w+, rank 1"],
             ("--data", "good.txt"), ("--data", write("bad.txt", b"All is ill which ends well. " * 50))),
        Case("threads and recomputation may differ", 0, [], ("--threads", 1), ("--threads", 2, "--recompute")),
        Case("equal data under other names", 0, [], ("--data", "good.txt"),
             ("--data", write("copy.txt", b"All is well that ends well. " * 50))),
        Case("other weights", DISAGREEMENT,
             [r"transformer\.\S+ is not the same on all ranks", "rank 0 has", "rank 1 has"],
             ("--init", safetensors("zeros.safetensors", tiny_tensors(64))), ("--init", one_bit_of("zeros.safetensors"))),
        Case("config missing on one rank", CONFIG, ["rank 1", "missing.json"], first,
             ("--deepspeed_config", "missing.json")),
        Case("bad option on one rank", CONFIG, ["rank 1", "--stepps"], (), ("--stepps", 1)),
    ]


def library_cases():
    """oneDNN can be limited to older instructions."""
    if b"libdnnl" not in pathlib.Path(PROGRAM).read_bytes() or "avx" not in pathlib.Path("/proc/cpuinfo").read_text():
        return []
    differing = ["matrix products .*: rank 0 has oneDNN .*, rank 1 has oneDNN"]
    exact = ("--set", "zero_core.deterministic=true")
    return [Case("other instructions, equal bits asked for", DISAGREEMENT, differing, exact,
                 Rank(*exact, ONEDNN_MAX_CPU_ISA="SSE41")),
            Case("other instructions", 0, ["notice", *differing], (), Rank(ONEDNN_MAX_CPU_ISA="SSE41"))]


def launcher_cases():
    few_files = ["sh", "-c", 'ulimit -n 20; exec "$@"', "sh"]
    small_files = ["sh", "-c", 'ulimit -f 100; exec "$@"', "sh"]
    large = r"File too large; raise the limit of file sizes \(ulimit -f\)"
    return [Case("another launcher's ranks on one rank", TOPOLOGY, ["rank 1", "OMPI_COMM_WORLD_SIZE says 5 ranks", "sees 2"],
                 (), Rank(OMPI_COMM_WORLD_SIZE=5)),
            Case("few open files", TOPOLOGY, ["open files", "ulimit -n"], (), wrapper=few_files),
            Case("few open files on one rank", TOPOLOGY, ["rank 1", "open files", "ulimit -n"], (),
                 Rank(wrapper=few_files)),
            Case("small files, shared memory", MEMORY, ["shared by the ranks|cannot reserve", large],
                 Rank(wrapper=small_files)),
            Case("small files, a save", SAVE, ["shard-00001", large], Rank("--checkpoint", "c", wrapper=small_files),
                 alone=True)] + [
            Case(f"{variable} says 4, MPI sees 1", TOPOLOGY, [variable, r"\b4 ranks", "MPI sees 1", "mpirun|srun"], (),
                 alone=True, environment={variable: "4", **more})
            for variable, more in (("OMPI_COMM_WORLD_SIZE", {}), ("PMI_SIZE", {}),
                                   ("SLURM_NTASKS", {"SLURM_STEP_ID": "0"}))]


def run(case, folder):
    """Returns the problems of a case, and its seconds."""
    begin = time.monotonic()
    try:
        problems = case.check(folder)
    except launch.Failed as failed:
        problems = [str(failed)]
    return problems, time.monotonic() - begin


def main():
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        cases = [*config_cases(), *option_cases(), *data_cases(), *init_cases(), *disagreement_cases(),
                 *library_cases(), *launcher_cases()]
        # In parallel, since the jobs mostly wait for the launcher.
        with concurrent.futures.ThreadPoolExecutor(max_workers=10) as pool:
            for case, (problems, seconds) in zip(cases, pool.map(lambda case: run(case, folder), cases)):
                failures += bool(problems)
                result = "FAILED: " + "; ".join(problems) if problems else "ok"
                print(f"{case.name}: {result} ({seconds:.1f} s)", flush=True)
        os.chdir("/")
    print(f"{len(cases)} cases, {failures} failures")
    sys.exit(failures != 0)


main()
