"""The entries of the queue, in the order in which they run: what tells most comes first.

Estimates are of one H200 with 16 cores; a limit is what an entry may take there at most.
"""

import os
import sys

from run_queue import Entry

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BENCH = f"{TESTS}/bench"
# `torch` needs the Python package of a build on that machine, and is skipped without it.
ALL = ("probe", "bench", "train", "profile", "bits", "offload", "peers", "losses", "sanitize", "torch")
PARTS = {"all": ALL, **{part: ("probe", part) for part in ALL[1:]}, "probe": ("probe",)}
# Of the tests of our own kernels: a sanitizer is slow, and has nothing to say about those of libraries.
OWN_TESTS = {"gpu_test": "*updates*,*bins*,*decision*,*sums in rank order*",
             "gpt_gpu_test": "*norms*,*embedding*,*GELU and SwiGLU*,*rotary*,*causal attention*,*entropy*"}
OWN_KERNELS = {"gpu_test": "kns=_ZN4zero", "gpt_gpu_test": "kns=_ZN3gpt"}


def python(script, *arguments):
    return [sys.executable, f"{BENCH}/{script}", *map(str, arguments)]


def make(tiny=False):
    """Of all parts. `tiny`: models that a machine without a GPU runs in seconds, on stand-ins."""
    for entry in make_entries(tiny):
        if tiny and entry.part != "probe":
            entry.estimate_s, entry.limit_s = 1, 15 if entry.part == "bench" else 120
        yield entry


def make_entries(tiny):
    programs = os.environ.get("ZERO_GPU_PROGRAMS", "build/release/bin")
    train = f"{programs}/train_gpt"
    gpt2, xl, llama = ("tiny-gpt2", "tiny-gpt2", "tiny-llama") if tiny else ("gpt2", "gpt2-xl", "llama-1.2b")
    size = ("--any-attention", "--batch", 1) if tiny else ()
    steps = (*size, "--steps", 3, "--warmup", 1) if tiny else ()
    few = ("--last=2",) if tiny else ()  # test cases
    vocabularies = (256, 251) if tiny else (50304, 50257)

    yield Entry("probe", "libraries, driver and programs", [sys.executable, f"{TESTS}/gpu/probe.py", programs], 5, 90)

    yield Entry("bench", "optimizer step, norm and copies against the device copy",
                [f"{programs}/gpu_bench", *(["--elements", "1024"] if tiny else [])], 30, 90)

    for vocabulary in vocabularies:
        yield Entry("train", f"GPT-2 124M, vocabulary {vocabulary}",
                    python("gpu_steps.py", train, "--model", gpt2, "--vocabulary", vocabulary, *steps), 25, 90)
    yield Entry("train", "GPT-2 1.5B", python("gpu_steps.py", train, "--model", xl, *steps), 60, 150)
    yield Entry("train", "Llama 1.2B", python("gpu_steps.py", train, "--model", llama, *steps), 60, 150)
    yield Entry("train", "Llama 1.2B, products apart",
                python("gpu_steps.py", train, "--model", llama, "--separate-products", *steps), 60, 150)

    yield Entry("profile", "kernels of a step of GPT-2 124M",
                python("gpu_profile.py", train, "--model", gpt2, *size), 60, 180, ("ncu",))

    yield Entry("bits", "kernels, streams, one rank",
                [f"{programs}/gpu_test", "--test-case-exclude=*ranks as threads*", *few], 30, 70)
    yield Entry("bits", "the trainer's kernels, models and loop", [f"{programs}/gpt_gpu_test", *few], 50, 100)
    yield Entry("bits", "ranks as threads, against CPU ranks",
                [f"{programs}/gpu_test", "--test-case=*ranks as threads*", *few], 15, 60)
    for ranks in (1, 2, 4):
        yield Entry("bits", f"stages on {ranks} ranks, deterministic, against CPU ranks",
                    [sys.executable, f"{TESTS}/gpu/compare_ranks.py", f"{programs}/gpu_ranks", str(ranks)],
                    15 * ranks, 90 if ranks < 4 else 240, ("mpirun",))
    yield Entry("bits", "2 ranks, plain NCCL, run to run",
                [sys.executable, f"{TESTS}/gpu/compare_ranks.py", f"{programs}/gpu_ranks", "2", "plain"],
                25, 80, ("mpirun",))

    yield Entry("offload", "GPT-2 124M with state in host memory",
                python("gpu_steps.py", train, "--model", gpt2, "--offload", f"{programs}/gpu_bench", *steps), 75, 200)

    for name, model, estimate, more in (("GPT-2 124M", gpt2, 150, ("--fsdp2", "--whole")), ("GPT-2 1.5B", xl, 120, ()),
                                        ("Llama 1.2B", llama, 120, ())):
        more += ("--repeat", 1 if model in (xl, llama) else 2, "--steps", 3 if tiny else 10)
        yield Entry("peers", f"{name} beside PyTorch", python("gpu_training.py", "speed", train, "--model", model, *more, *size),
                    estimate, 2 * estimate)

    for name, model, batch in (("GPT-2 124M", gpt2, 4), ("Llama 1.2B", llama, 2)):
        yield Entry("losses", f"{name} in bf16 against PyTorch in fp32",
                    python("gpu_training.py", "losses", train, "--model", model, "--batch", batch, *size), 90, 240)

    for tool in ("memcheck", "racecheck"):
        for program, cases in OWN_TESTS.items():
            yield Entry("sanitize", f"{tool}, kernels of {program}",
                        ["compute-sanitizer", "--tool", tool, "--error-exitcode", "1", "--kernel-regex",
                         OWN_KERNELS[program], f"{programs}/{program}", f"--test-case={cases}", *few],
                        60, 150, ("compute-sanitizer",))

    package = os.path.join(os.path.dirname(os.path.abspath(programs)), "python")
    for precision in ((), ("--bf16",)):
        yield Entry("torch", f"GPT-2 of transformers {'in bf16' if precision else 'in fp32'}",
                    python("training.py", package, "--ranks", 1, "--device", "cuda", "--batch", 8, "--tokens", 1024,
                           "--turns", 5, "--steps", 5, *precision, "0:alone", "0:ddp", "3:fsdp2", "0:1", "0:2", "0:3"),
                    120, 250, ("mpirun", f"{package}/zerocore"))
