"""Tests device cuda on a machine without a GPU: one line, exit code 11. Usage: absent_test.py TEXT PROGRAM
[ARGUMENTS]

The line must contain TEXT."""

import os
import subprocess
import sys

if os.path.exists("/proc/driver/nvidia/version"):
    print("skipped: there is an NVIDIA driver here")
    sys.exit(77)
run = subprocess.run(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=50)
lines = run.stderr.strip().split("\n")
good = run.returncode == 11 and len(lines) == 1 and sys.argv[1] in lines[0] and run.stdout == ""
print(run.returncode, run.stdout, run.stderr, "as expected" if good else "UNEXPECTED")
sys.exit(0 if good else 1)
