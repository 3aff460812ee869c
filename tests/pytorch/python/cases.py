"""Several cases of a script in one process, since its start, the import of torch, takes longer than most of them:
`script.py CASE [ARGUMENT]... [-- CASE [ARGUMENT]...]...`."""

import itertools
import sys


def run(functions):
    """Calls `functions` by the cases' names, in the order of the command line."""
    for separates, words in itertools.groupby(sys.argv[1:], "--".__eq__):
        if not separates:
            case, *arguments = words
            functions[case](*arguments)
