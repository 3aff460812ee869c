"""Checks the edges of lint.py in what was compiled. Usage: symbols.py BUILD_FOLDER

An object file may use what its own folder defines, and what the folders define that it may include. So a
declaration in a low folder whose definition stands in a higher one is found too. Prints a line per finding and
exits with 1 if there is any.
"""

import os
import subprocess
import sys

from lint import EDGES, ON_PUBLIC_HEADERS, folder_of

# What the public headers declare is defined in many folders.
CHECKED = tuple(folder for folder in EDGES if folder not in ("tools", "tests", *ON_PUBLIC_HEADERS))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEFINED = "TDBR"  # strong symbols, by nm's letters; what headers define is weak


def object_files(build):
    """Object files of the libraries, each with its source's path."""
    for folder, _, names in os.walk(build):
        head, mark, tail = os.path.relpath(folder, build).partition("/CMakeFiles/")
        if not mark:
            continue
        target, _, inner = tail.partition("/")
        for name in names:
            if name.endswith(".o") and target.endswith(".dir"):
                source = os.path.normpath(os.path.join(head, inner, name[:-2]))
                # A build folder keeps object files of sources that are gone.
                if folder_of(source) in CHECKED and os.path.exists(os.path.join(ROOT, source)):
                    yield os.path.join(folder, name), source


def symbols_of(path):
    """The strong symbols that an object file defines, and those that it needs."""
    listed = subprocess.run(["nm", path], check=True, capture_output=True, text=True).stdout
    defined, needed = set(), set()
    for line in listed.splitlines():
        kind, name = line.split()[-2:]
        if kind == "U":
            needed.add(name)
        elif kind in DEFINED:
            defined.add(name)
    return defined, needed


def may_use(folder, source):
    header = os.path.splitext(source)[0] + ".h"
    return folder_of(source) == folder or folder_of(source) in EDGES[folder] or header in EDGES[folder]


def check(objects):
    """Findings over {source path: (defined, needed)}."""
    home = {name: source for source, (defined, _) in objects.items() for name in defined}
    findings = []
    for source, (_, needed) in sorted(objects.items()):
        folder = folder_of(source)
        for name in sorted(needed):
            if name in home and not may_use(folder, home[name]):
                findings.append(f"{source}: edge: {folder} may not use {name}, which {home[name]} defines")
    return findings


def main():
    objects = {source: symbols_of(path) for path, source in object_files(sys.argv[1])}
    folders = {folder_of(source) for source in objects}
    missing = [f for f in ("zero/plan", "zero/run", "comm", "optim") if f not in folders]
    findings = check(objects) + [f"no object file of {folder} in {sys.argv[1]}" for folder in missing]
    print("\n".join(findings) if findings else f"symbols: no findings in {len(objects)} object files")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
