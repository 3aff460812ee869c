"""Writes the first code block of a language from a Markdown file. Usage: extract.py README.md LANGUAGE OUTPUT"""

import re
import sys


def block(markdown, language):
    with open(markdown, encoding="utf-8") as file:
        match = re.search(rf"^```{language}\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
    if not match:
        raise SystemExit(f"{markdown} has no block of {language}")
    return match[1]


if __name__ == "__main__":
    with open(sys.argv[3], "w", encoding="utf-8") as output:
        output.write(block(sys.argv[1], sys.argv[2]))
