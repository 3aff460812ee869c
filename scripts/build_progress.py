"""Shows the progress of a build: of ninja's lines on standard input, "[12/90] ...", the count alone. On a terminal the line
is rewritten; elsewhere every tenth of the work gives one."""

import re
import sys
import time


def main():
    start, shown = time.monotonic(), -1
    for line in sys.stdin:
        match = re.match(r"\s*\[(\d+)/(\d+)\] ", line)
        done, total = map(int, match.groups()) if match else (0, 0)
        if total < 10:  # CMake again, not the build
            continue
        text = f"{time.monotonic() - start:4.0f} s  {done} of {total} files compiled"
        if sys.stdout.isatty():
            print(f"\r{text}", end="\n" if done == total else "", flush=True)
        elif 10 * done // total > shown:
            shown = 10 * done // total
            print(text, flush=True)


if __name__ == "__main__":
    main()
