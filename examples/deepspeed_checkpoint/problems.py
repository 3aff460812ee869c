"""Messages of the converter: errors that end it, and notices."""

import sys


def refuse(problem):
    sys.exit(f"convert.py: {problem}")


def notice(text):
    print(f"convert.py: {text}", file=sys.stderr)


def listed(names, most=5):
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
