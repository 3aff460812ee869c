"""Checks the kernels' PTX: nothing is contracted, flushed or approximated; kernels that must be fast have 16-byte
accesses, and 64-bit divisions only up to the limits below. Usage: ptx_test.py FILE...

ptxas may fuse a product or sum without a rounding mode; .rn forbids it.
"""

import re
import sys

BAD = (
    (re.compile(r"\b(mul|add|sub)\.f(32|64)\b"), "may be contracted"),
    (re.compile(r"\.ftz\b"), "flushes denormals"),
    (re.compile(r"\.approx\b"), "is an approximation"),
    (re.compile(r"\bmad\.(f|rn\.f)"), "is a contraction"),
    (re.compile(r"\b(div|rcp|sqrt)\.(full|rz|ru|rd)"), "does not round to nearest"),
    (re.compile(r"\b(atom|red)\.[\w.]*\.f(16|32|64)"), "adds floats in any order"),
)
# Without these names in the files the search would prove nothing.
NEEDED = ("fma.rn.f32", "div.rn.f32", "sqrt.rn.f32", "mul.rn.f32", "add.rn.f32", "add.rn.f64", "sqrt.rn.f64")

# The largest number of 64-bit integer divisions and remainders per kernel, each of which takes a hundred instructions;
# kernels not named here may have none. Kernels in the first line have loops that nvcc unrolls, once per thread; in the
# others one thread divides, or they handle Muon's matrices, whose divisions cost little next to its products. Adafactor's
# divide to find rows and columns, and their speed has not been measured.
DIVISIONS = {"decode_kernel": 1, "error_kernel": 1, "round_kernel": 1,
             "decide_kernel": 1, "direct_kernel": 1, "normalize_kernel": 1, "diagonal_kernel": 1, "transpose_kernel": 6,
             "factor_sums_kernel": 4, "measure_factored_kernel": 32, "update_factored_kernel": 2}
# Arrays that a thread indexes: limbs of exact sums, factors of a step, two codes of a pair.
LOCAL = ("norm_kernel", "measure_kernel", "decide_kernel", "normalize_kernel", "steps_kernel",
         "factor_sums_kernel", "moments_kernel", "measure_factored_kernel")
# The smallest number of wide loads and stores, in every instance.
WIDE = {"ordered_sum_kernel": (1, 1), "decode_kernel": (1, 1), "sum_kernel": (1, 1), "error_kernel": (2, 0), "norm_kernel": (1, 0),
        "update_kernel": (4, 4)}
ENTRY = re.compile(r"\.entry (\S+?)\(.*?\n}\n", re.S)


def limits_broken(text):
    seen = set()
    for entry in ENTRY.finditer(text):
        name = re.search(r"\d+([a-z_]+_kernel)(?=[IE])", entry[1])[1]
        body = entry[0]
        seen.add(name)
        divisions = len(re.findall(r"\b(?:div|rem)\.[su]64", body))
        if divisions > DIVISIONS.get(name, 0):
            yield f"{entry[1]}: {divisions} divisions of 64 bits, and at most {DIVISIONS.get(name, 0)} may be there"
        if name not in LOCAL and re.search(r"\b(?:ld|st)\.local", body):
            yield f"{entry[1]}: local memory"
        for what, least in zip(("ld", "st"), WIDE.get(name, (0, 0))):
            there = len(re.findall(rf"\b{what}\.global\.(?:\w+\.)*v4", body))
            if there < least:
                yield f"{entry[1]}: {there} {what} of 16 bytes, and there must be {least}"
    yield from (f"no kernel is named {name}" for name in {*DIVISIONS, *LOCAL, *WIDE} - seen)


text = "\n".join(open(path, encoding="utf-8").read() for path in sys.argv[1:])
findings = [f"{number}: {line.strip()}: {why}" for number, line in enumerate(text.split("\n"), 1)
            for pattern, why in BAD if pattern.search(line)]
findings += limits_broken(text)
findings += [f"no {instruction} in {sys.argv[1:]}" for instruction in NEEDED if instruction not in text]
print("\n".join(findings[:50]) if findings else f"{len(text)} characters of PTX: as written")
sys.exit(1 if findings else 0)
