"""Completes the metadata of an unpacked wheel: the versions of torch that it has extensions for, and the README's links, which
are relative in the repository, as absolute ones. Usage: wheel_metadata.py FOLDER [--url URL]

URL is the address of the repository; without it, links become plain text."""

import argparse
import pathlib
import re


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--url", default="")
    options = parser.parse_args()
    (path,) = options.folder.glob("zerocore-*.dist-info/METADATA")
    found = sorted(tuple(map(int, re.match(r"torch(\d+)\.(\d+)", file.name).groups()))
                   for file in options.folder.glob("zerocore/binaries/torch*.so"))
    (major, oldest), newest = found[0], found[-1][1]
    head, _, description = path.read_text(encoding="utf-8").partition("\n\n")
    head = re.sub(r"^Requires-Dist: torch.*", f"Requires-Dist: torch>={major}.{oldest},<{major}.{newest + 1}", head, flags=re.M)
    if options.url:
        url = options.url.removesuffix(".git").rstrip("/")
        head += "".join(f"\nProject-URL: {name}, {url}{rest}" for name, rest in (
            ("Repository", ""), ("Documentation", "/blob/main/docs/README.md"), ("Changelog", "/blob/main/CHANGELOG.md"),
            ("Issues", "/issues")))
        description = with_links(description, url)
    else:
        description = with_links(description, "")
    path.write_text(f"{head}\n\n{description}", encoding="utf-8")


def with_links(text, url):
    """Returns Markdown with its relative links below `url`, or without them if that is empty."""
    def absolute(match):
        image, label, target = match.groups()
        if re.match(r"https?:", target):
            return match[0]
        if not url:
            return "" if image else label
        return f"{image}[{label}]({url}/{'raw' if image else 'blob'}/main/{target})" if target[0] != "#" else label
    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", absolute, text)


if __name__ == "__main__":
    main()
