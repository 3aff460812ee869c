"""Nothing in the kernels' PTX may be contracted, flushed or approximated. Usage: ptx_test.py FILE...

A product or sum without a rounding mode is one that ptxas may fuse; .rn forbids it.
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
# Without these the search would prove nothing.
NEEDED = ("fma.rn.f32", "div.rn.f32", "sqrt.rn.f32", "mul.rn.f32", "add.rn.f32", "add.rn.f64", "sqrt.rn.f64")

text = "\n".join(open(path, encoding="utf-8").read() for path in sys.argv[1:])
findings = [f"{number}: {line.strip()}: {why}" for number, line in enumerate(text.split("\n"), 1)
            for pattern, why in BAD if pattern.search(line)]
findings += [f"no {instruction} in {sys.argv[1:]}" for instruction in NEEDED if instruction not in text]
print("\n".join(findings[:50]) if findings else f"{len(text)} characters of PTX: as written")
sys.exit(1 if findings else 0)
