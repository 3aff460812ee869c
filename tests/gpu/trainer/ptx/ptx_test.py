"""The trainer's kernels read and write rows 16 bytes at a time. Usage: ptx_test.py FILE...

In addition to accesses of whole packs, most kernels have a path for rows in which no pack is aligned.
"""

import re
import sys

# For each bf16 instance: the least wide loads and wide stores, and the most 16-bit loads; None if it has a path for
# unaligned rows.
KERNELS = {
    "classifier_kernel": (2, 3, 1),
    "round_sums_kernel": (3, 1, None),
    "norm_forward_kernel": (4, 1, None),
    "norm_backward_kernel": (7, 3, None),
    "column_parts_kernel": (1, 1, None),
    "add_parts_kernel": (1, 0, 1),
    "embed_forward_kernel": (2, 1, None),
    "embed_segments_kernel": (2, 3, None),
    "embed_runs_kernel": (4, 1, None),
    "embed_positions_kernel": (2, 1, None),
    "gelu_forward_kernel": (1, 1, None),
    "gelu_backward_kernel": (2, 1, None),
    "swiglu_forward_kernel": (2, 1, None),
    "swiglu_backward_kernel": (3, 2, None),
    "add_kernel": (2, 1, None),
    "add_bias_kernel": (2, 1, None),
    "rotate_kernel": (6, 2, None),
}

# The most 64-bit divisions and remainders per kernel, executed per row by one thread or warp. Other kernels have none.
DIVISIONS = {"embed_forward_kernel": 1, "norm_backward_kernel": 2, "column_parts_kernel": 2, "swiglu_forward_kernel": 1,
             "swiglu_backward_kernel": 1, "rotate_kernel": 3}

text = "\n".join(open(path, encoding="utf-8").read() for path in sys.argv[1:])
findings = []
entries = {match[1]: match[0] for match in re.finditer(r"\.entry (\S+?)\(.*?\n}\n", text, re.S)}
for kernel, (loads, stores, narrow) in KERNELS.items():
    found = [body for name, body in entries.items() if re.search(rf"\d{kernel}I.*bf16", name)]
    if len(found) != 1:
        findings.append(f"{kernel}: {len(found)} instances for bf16, and there must be one")
        continue
    body = found[0]
    for what, least in (("ld", loads), ("st", stores)):
        there = len(re.findall(rf"\b{what}\.global\.(?:wb\.)?v4\.", body))
        if there < least:
            findings.append(f"{kernel}: {there} {what}.global.v4, and there must be {least}")
    there = len(re.findall(r"\bld\.global\.[usb]16", body))
    if narrow is not None and there > narrow:
        findings.append(f"{kernel}: {there} loads of 16 bits, and at most {narrow} may be there")
    if re.search(r"\b(atom|red)\.[\w.]*\.f(16|32|64)", body):
        findings.append(f"{kernel} adds floats in any order")
for entry, body in entries.items():
    name = re.search(r"\d+([a-z_]+_kernel)(?=[IE])", entry)[1]
    divisions = len(re.findall(r"\b(?:div|rem)\.[su]64", body))
    if divisions > DIVISIONS.get(name, 0):
        findings.append(f"{entry}: {divisions} divisions of 64 bits, and at most {DIVISIONS.get(name, 0)} may be there")
    if re.search(r"\b(ld|st)\.local", body):
        findings.append(f"{entry}: local memory")
if "cp.async.cg.shared.global" not in text:
    findings.append("no copy into shared memory goes past the registers")
print("\n".join(findings) if findings else f"{len(KERNELS)} kernels with accesses of 16 bytes")
sys.exit(1 if findings else 0)
