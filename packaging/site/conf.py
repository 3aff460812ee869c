"""The pages as a site with a search, by Sphinx: `sphinx-build -W -c packaging/site . build/site` in the root of the repository,
after `pip install sphinx myst-parser furo`. The pages stay what they are; the menu is the table of docs/README.md."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

project = "ZeroCore"
release = re.search(r"project\(ZeroCore VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
extensions = ["myst_parser", "sphinx.ext.autodoc"]
autodoc_mock_imports = ["torch", "numpy", "zerocore._native", "zerocore._build"]
sys.path.insert(0, str(ROOT / "pytorch/python"))
sys.dont_write_bytecode = True
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "examples/README.md", "tools/zero/README.md", "packaging/site/python.md"]
myst_heading_anchors = 6
html_theme = "furo"
smartquotes = False
default_role = "code"  # of docstrings
html_title = f"{project} {release}"
html_show_copyright = False
suppress_warnings = ["misc.highlighting_failure"]


def menu():
    """Returns the toctrees of the pages that docs/README.md lists: a caption for each row of its first table. The rest has none."""
    rows = re.findall(r"^\| ([\w ]+) \| (.*\]\(.*) \|$", (ROOT / "docs/README.md").read_text(), re.M)
    trees = [(":hidden:", "", "docs/README", "examples/README", "tools/zero/README", "packaging/site/python")]
    for caption, links in rows:
        pages = dict.fromkeys(str((ROOT / "docs" / link).resolve().relative_to(ROOT).with_suffix(""))
                              for link in re.findall(r"\]\(([^)#]+\.md)(?:#[^)]*)?\)", links))
        trees.append((":hidden:", f":caption: {caption[0].upper()}{caption[1:]}", "", *pages))
    return "\n\n".join("\n".join(("```{toctree}", *lines, "```")) for lines in trees)


def add_menu(_app, page, source):
    if page == root_doc:
        source[0] += "\n\n" + menu() + "\n"


def add_front_door(app, error):
    if not error:
        pathlib.Path(app.outdir, "index.html").write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={root_doc}.html"><title>{html_title}</title>\n')


def mark_code(_app, _what, _name, _value, _options, lines):
    """Makes the indented lines of a docstring literal, as a reader of the source takes them."""
    for index in range(len(lines) - 1, 1, -1):
        if lines[index].startswith("    ") and not lines[index - 1] and lines[index - 2] and not lines[index - 2].startswith(" "):
            lines[index - 1:index] = ["", "::", ""]


def setup(app):
    app.connect("source-read", add_menu)
    app.connect("autodoc-process-docstring", mark_code)
    app.connect("build-finished", add_front_door)
    return {"parallel_read_safe": True}
