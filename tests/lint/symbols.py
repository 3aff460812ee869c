"""Checks the edges of lint.py in compiled code. Usage: symbols.py BUILD_FOLDER

An object file may use symbols of its own folder, and of the folders that it may include. So a declaration in a low
folder is found too if its definition is in a higher one. A library may use symbols of the libraries that it links: a
program that links only these would not link, or only until one object file holds more. Prints a line per finding and
exits with 1 if there is any.
"""

import os
import subprocess
import sys

from lint import EDGES, ON_PUBLIC_HEADERS, folder_of

# Without folders on the public headers, since declarations of these are defined in many folders.
CHECKED = tuple(folder for folder in EDGES if folder not in ("tools", "tests", *ON_PUBLIC_HEADERS))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEFINED = "TDBR"  # strong symbols, by nm's letters; headers define weak ones


def object_files(build):
    """Yields object files, each with its source's path and its target, without those of deleted sources."""
    for folder, _, names in os.walk(build):
        head, mark, tail = os.path.relpath(folder, build).partition("/CMakeFiles/")
        if not mark:
            continue
        target, _, inner = tail.partition("/")
        for name in names:
            if name.endswith(".o") and target.endswith(".dir"):
                source = os.path.normpath(os.path.join(head, inner, name[:-2]))
                if os.path.exists(os.path.join(ROOT, source)):
                    yield os.path.join(folder, name), source, target.removesuffix(".dir").removesuffix("_cold")


def symbols_of(path):
    """Returns the strong symbols that an object file defines, and those that it needs."""
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
    """Returns findings over {source path: (defined, needed)}."""
    home = {name: source for source, (defined, _) in objects.items() for name in defined}
    findings = []
    for source, (_, needed) in sorted(objects.items()):
        folder = folder_of(source)
        for name in sorted(needed):
            if name in home and not may_use(folder, home[name]):
                findings.append(f"{source}: edge: {folder} may not use {name}, which {home[name]} defines")
    return findings


def linked_libraries(path):
    """Returns for each library the set of libraries that a program links with it, itself included."""
    with open(path) as file:
        lines = [line.replace("$<BUILD_INTERFACE:", "").replace(">", "").split() for line in file]
    direct = {library: set(linked) for library, *linked in lines}
    found = {}
    for library in direct:
        found[library] = reached = {library}
        while more := set().union(*(direct.get(each, ()) for each in reached)) - reached:
            reached |= more
    return found


def check_libraries(objects, linked):
    """Returns findings over {(source path, library): (defined, needed)}."""
    homes = {}
    for (_, library), (defined, _) in objects.items():
        for name in defined:
            homes.setdefault(name, set()).add(library)
    return [f"{source}: {library} does not link a library that defines {name}: {', '.join(sorted(homes[name]))}"
            for (source, library), (_, needed) in sorted(objects.items()) for name in sorted(needed)
            if name in homes and not homes[name] & linked[library]]


def main():
    build = sys.argv[1]
    linked = linked_libraries(os.path.join(build, "libraries.txt"))
    in_folders, in_libraries = {}, {}
    for path, source, target in object_files(build):
        if folder_of(source) in CHECKED or target in linked:
            symbols = symbols_of(path)
            if folder_of(source) in CHECKED:
                in_folders[source] = symbols
            if target in linked:
                in_libraries[source, target] = symbols
    folders = {folder_of(source) for source in in_folders}
    missing = [f for f in ("zero/plan", "zero/engine", "comm", "optim") if f not in folders]
    findings = check(in_folders) + [f"no object file of {folder} in {build}" for folder in missing]
    findings += check_libraries(in_libraries, linked)
    print("\n".join(findings) if findings else f"symbols: no findings in {len(in_libraries)} object files")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
