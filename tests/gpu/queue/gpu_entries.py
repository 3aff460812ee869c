"""The queue's entries in the order in which they run: the most informative come first. Estimates are for one H200
with 16 cores; `limit` is the longest time that an entry may take there."""

import os
import sys

from run_queue import Entry

QUEUE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(os.path.dirname(QUEUE))
BENCH = f"{TESTS}/bench"
# `contact` and `modules` need the Python package for that machine's Python and torch, and are skipped without it.
ALL = ("probe", "contact", "again", "bits", "bench", "gpt2", "stages", "offload", "modules", "kernels", "sanitize", "models",
       "losses")
# A machine lent for 15 minutes takes a call of 560 s and one of 240 s: first what no GPU has run yet.
PARTS = {"all": ALL, "first": ("probe", "contact", "bench", "offload", "modules"), "second": ("probe", "again", "models"),
         **{part: ("probe", part) for part in ALL[1:]}, "probe": ("probe",)}
# Sanitizers run tests of our own kernels only, because they are slow, and libraries are not ours to check.
OWN_TESTS = {"gpu_test": "*updates*,*bins*,*decision*,*sums in rank order*",
             "gpt_gpu_test": "*norms*,*embedding*,*GELU and SwiGLU*,*rotary*,*causal attention*,*entropy*"}
OWN_KERNELS = {"gpu_test": "kns=_ZN4zero", "gpt_gpu_test": "kns=_ZN3gpt"}


def python(script, *arguments):
    return [sys.executable, f"{BENCH}/{script}", *map(str, arguments)]


def make(tiny=False):
    """Returns the entries of all parts. `tiny`: models that a machine without a GPU runs in seconds, on stand-ins."""
    for entry in make_entries(tiny):
        if tiny and entry.part != "probe":
            entry.estimate_s, entry.limit_s = 1, 15 if entry.part == "bench" else 120
        yield entry


def make_entries(tiny):
    programs = os.environ.get("ZERO_GPU_PROGRAMS", "build/release/bin")
    for part in (probe, contact, checks, gpt2, stages, offload, modules, kernels, models):
        yield from part(Models(programs, tiny))


class Models:
    def __init__(self, programs, tiny):
        self.programs, self.tiny = programs, tiny
        self.train = f"{programs}/train_gpt"
        self.gpt2, self.xl, self.llama = ("tiny-gpt2", "tiny-gpt2", "tiny-llama") if tiny else ("gpt2", "gpt2-xl", "llama-1.2b")
        self.size = ("--any-attention", "--batch", 1) if tiny else ()
        self.steps = (*self.size, "--steps", 3, "--warmup", 1) if tiny else ()
        self.few = ("--last=2",) if tiny else ()  # test cases

    def program(self, name):
        return f"{self.programs}/{name}"

    def steps_of(self, model, *options):
        return python("gpu_steps.py", self.train, "--model", model, *options, *self.steps)

    def beside_pytorch(self, model, estimate, *options):
        repeats = ("--repeat", 2 if options and not self.tiny else 1, "--steps", 3 if self.tiny else 10)
        return python("gpu_training.py", "speed", self.train, "--model", model, *options, *repeats, *self.size), estimate, 2 * estimate


def probe(m):
    yield Entry("probe", "libraries, driver and programs", [sys.executable, f"{QUEUE}/probe.py", m.programs], 5, 90)


# Correctness must pass before speed means anything; then the kernels of a step.
def checks(m):
    yield Entry("bits", "kernels, streams, one rank",
                [m.program("gpu_test"), "--test-case-exclude=*ranks as threads*", *m.few], 30, 70)
    yield Entry("bits", "the trainer's kernels, models and loop", [m.program("gpt_gpu_test"), *m.few], 50, 100)
    yield Entry("bench", "optimizer step, norm and copies against the device copy",
                [m.program("gpu_bench"), *(["--elements", "1024"] if m.tiny else [])], 30, 90)


# llm.c's own figure is also a ratio to PyTorch: these runs of PyTorch serve both comparisons.
def gpt2(m):
    for vocabulary in (256, 251) if m.tiny else (50304, 50257):
        yield Entry("gpt2", f"GPT-2 124M, vocabulary {vocabulary}", m.steps_of(m.gpt2, "--vocabulary", vocabulary), 25, 90)
    yield Entry("gpt2", "GPT-2 124M next to PyTorch",
                *m.beside_pytorch(m.gpt2, 170, "--fsdp2", "--whole", "--any-order"))


def stages(m):
    yield Entry("stages", "ranks as threads, against CPU ranks",
                [m.program("gpu_test"), "--test-case=*ranks as threads*", *m.few], 15, 60)
    compare = [sys.executable, f"{QUEUE}/compare_ranks.py", m.program("gpu_ranks")]
    for ranks in (1, 2, 4):
        yield Entry("stages", f"stages on {ranks} ranks, deterministic, against CPU ranks", [*compare, str(ranks)],
                    15 * ranks, 90 if ranks < 4 else 240, ("mpirun",))
    yield Entry("stages", "2 ranks, plain NCCL, run to run", [*compare, "2", "plain"], 25, 80, ("mpirun",))


def offload(m):
    bench = m.program("gpu_bench")
    yield Entry("offload", "GPT-2 124M with state in host memory, stepped by the host",
                m.steps_of(m.gpt2, "--offload", bench, "--ways", "optimizer", "parameters"), 60, 150)
    yield Entry("offload", "GPT-2 124M with state in host memory, stepped by the GPU",
                m.steps_of(m.gpt2, "--offload", bench, "--ways", "device_step", "both_step"), 55, 150)


# Modules on one rank and on ranks that share the GPU. Cases that have passed do not run again; the others do, once, in a way
# that shows which kernel failed.
def contact(m):
    package = package_beside(m.programs)
    command = [sys.executable, f"{TESTS}/gpu/modules/first_contact.py", "--json", "contact.jsonl", "--jobs", "8", "--seconds", "150",
               *(("--device", "cpu", "bf16_x1_*", "torchrun2_stage3") if m.tiny else ())]
    slowly = {"CUDA_LAUNCH_BLOCKING": "1", "TORCH_SHOW_CPP_STACKTRACES": "1"}
    for part, name, environment in (("contact", "PyTorch modules, next to a plain loop", {}),
                                    ("again", "modules that failed, kernel by kernel", slowly)):
        yield Entry(part, name, command, 60 if part == "contact" else 10, 160, (f"{package}/zerocore",),
                    {"PYTHONPATH": package, **environment})


def modules(m):
    package = package_beside(m.programs)
    pairs = ("0+torchrun:alone", "3+torchrun:fsdp2")
    size = ("--device", "cpu", "--model", "0.2M", "--batch", 1, "--tokens", 32, "--turns", 1, "--steps", 1, "--warmup", 1)
    if not m.tiny:
        pairs += ("0+torchrun:ddp", "0+torchrun:1+torchrun", "0+torchrun:2+torchrun", "0+torchrun:3+torchrun")
        size = ("--device", "cuda", "--batch", 8, "--tokens", 1024, "--turns", 5, "--steps", 5)
    for precision in ((), ("--bf16",)):
        yield Entry("modules", f"GPT-2 of transformers {'in bf16' if precision else 'in fp32'}",
                    python("training.py", package, "--ranks", 1, *size, *precision, *pairs), 120, 250,
                    (f"{package}/zerocore",))


def package_beside(programs):
    return os.path.join(os.path.dirname(os.path.abspath(programs)), "python")


# Activation kernels of a step first, then those of wire formats, then all of our own under sanitizers.
def kernels(m):
    yield Entry("kernels", "kernels of a step of GPT-2 124M",
                python("gpu_profile.py", m.train, "--model", m.gpt2, *m.size), 60, 180, ("ncu",))
    yield Entry("kernels", "wire formats against the device copy",
                [m.program("gpu_bench"), "--wire", *(["--elements", "1024"] if m.tiny else [])], 15, 60)
    for tool in ("memcheck", "racecheck"):
        for program, cases in OWN_TESTS.items():
            yield Entry("sanitize", f"{tool}, kernels of {program}",
                        ["compute-sanitizer", "--tool", tool, "--error-exitcode", "1", "--kernel-regex",
                         OWN_KERNELS[program], m.program(program), f"--test-case={cases}", *m.few],
                        60, 150, ("compute-sanitizer",))


def models(m):
    for name, model in (("GPT-2 1.5B", m.xl), ("Llama 1.2B", m.llama)):
        yield Entry("models", name, m.steps_of(model), 60, 150)
    for name, model in (("GPT-2 1.5B", m.xl), ("Llama 1.2B", m.llama)):
        yield Entry("models", f"{name} next to PyTorch", *m.beside_pytorch(model, 120))
    for name, model, batch in (("GPT-2 124M", m.gpt2, 4), ("Llama 1.2B", m.llama, 2)):
        yield Entry("losses", f"{name} in bf16 against PyTorch in fp32",
                    python("gpu_training.py", "losses", m.train, "--model", model, "--batch", batch, *m.size), 90, 240)
