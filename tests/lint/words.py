"""Rules on the words of comments, docstrings and pages, and on docstrings of the Python package."""

import ast
import io
import re
import tokenize

CPP = (".h", ".cpp", ".inl", ".cu", ".cuh")
HASH = (".sh", ".cmake", "CMakeLists.txt", ".ci/run", ".yml", ".yaml")

# A comment begins with its subject or its verb, not with a relative pronoun or a genitive.
HEADLESS = re.compile(r"(Of|What|Where|Which|Whose|Whom|By|To)\b")
# Words that are rarely needed: "if" or "when" are conditions, and a noun is a subject.
RARE = ("where", "what")
MOST_RARE = 2  # per 1,000 words of the comments in a top folder
PHRASES = (
    ("beside", "next to, in addition to, or with"),
    ("so many", "N, this many, or the number"),
    ("likewise", "the condition again, or also"),
    ("acts otherwise", "behaves differently"),
    ("act otherwise", "behave differently"),
    ("hears of", "is called with, or gets"),
    ("hear of", "get"),
    ("lies in", "is in, or is stored in"),
    ("lie in", "are in, or are stored in"),
    ("lies on", "is on, or is stored on"),
    ("rests in", "is stored in"),
    ("rest in", "are stored in"),
    ("stands in", "is in"),
    ("stand in", "are in"),
    ("come to rest", "are complete"),
    ("nobody knows", "is not known"),
    ("mends", "repairs"),
)
PHRASE = re.compile(r"\b(" + "|".join(r"\s+".join(phrase.split()) for phrase, _ in PHRASES) + r")\b", re.IGNORECASE)

# The package whose public names have docstrings; as_deepspeed repeats DeepSpeed's interface.
PACKAGE = re.compile(r"pytorch/python/zerocore/\w+\.py")

CPP_TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|\d[\w.']*", re.S)
HASH_COMMENT = re.compile(r"(?:^|\s)#(?!!)\s*(.*)")


class Words:
    """Counts the comments of a tree, and reports those that break a rule."""

    def __init__(self, report):
        self.report = report
        self.counts = {}  # top folder -> [words of comments, {rare word: [(path, line)]}]

    def check(self, path, lines):
        for number, text in comments_of(path, lines):
            if HEADLESS.match(text):
                self.report(path, number, "headless", f"{text[:40]}...: begin with the subject or the verb")
            self.check_phrases(path, number, text)
            self.count(path, number, text)
        for number, text in strings_of(path, lines):
            self.check_phrases(path, number, text)
        if path.endswith(".md"):
            for number, line in enumerate(lines, 1):
                self.check_phrases(path, number, line)
        if PACKAGE.fullmatch(path):
            self.check_docstrings(path, ast.parse("\n".join(lines)))

    def check_phrases(self, path, number, text):
        for match in PHRASE.finditer(text):
            words = " ".join(match[0].lower().split())
            self.report(path, number, "phrase", f'"{words}": write {dict(PHRASES)[words]}')

    def count(self, path, number, text):
        top = path.split("/")[0] if "/" in path else "."
        entry = self.counts.setdefault(top, [0, {word: [] for word in RARE}])
        entry[0] += len(text.split())
        for word in RARE:
            entry[1][word] += [(path, number)] * len(re.findall(rf"\b{word}\b", text, re.IGNORECASE))

    def end(self):
        for top, (words, places) in sorted(self.counts.items()):
            for word, found in places.items():
                most = max(MOST_RARE, words * MOST_RARE // 1000)
                for path, number in found[most:]:
                    self.report(path, number, "rare-word", f'the comments of {top}/ have "{word}" {len(found)} times; '
                                                           f"{most} at most: write if, when, or the noun")

    def check_docstrings(self, path, tree, inside=""):
        for node in tree.body:
            if not isinstance(node, (ast.ClassDef, ast.FunctionDef)) or node.name.startswith("_"):
                continue
            name = inside + node.name
            if ast.get_docstring(node) is None:
                self.report(path, node.lineno, "docstring", f"{name} has none; say what it returns or does, with types, "
                                                            "shapes and errors")
            if isinstance(node, ast.ClassDef):
                self.check_docstrings(path, node, name + ".")


def comments_of(path, lines):
    """Yields (line, text) of each comment, successive lines joined, and of each docstring."""
    if path.endswith(CPP):
        yield from joined(lines, cpp_comments(lines))
    elif path.endswith(".py"):
        yield from joined(lines, ((*token.start, token.string.lstrip("#!").strip())
                                  for token in python_tokens(lines) if token.type == tokenize.COMMENT))
        yield from docstrings(ast.parse("\n".join(lines)))
    elif path.endswith(HASH):
        yield from joined(lines, ((number, line.index("#", match.start()), match[1].strip())
                                  for number, line in enumerate(lines, 1) if (match := HASH_COMMENT.search(line))))


def strings_of(path, lines):
    """Yields (line, text) of each string literal; docstrings count as comments."""
    if path.endswith(CPP):
        for number, _, text in cpp_tokens(lines):
            if text.startswith(('"', "R")):
                yield number, text
    elif path.endswith(".py") and not path.startswith("tests/lint/"):
        docs = {number for number, _ in docstrings(ast.parse("\n".join(lines)))}
        for token in python_tokens(lines):
            if token.type == tokenize.STRING and token.start[0] not in docs:
                yield token.start[0], token.string


def python_tokens(lines):
    return tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline)


def cpp_comments(lines):
    for number, column, text in cpp_tokens(lines):
        if text.startswith(("//", "/*")):
            yield number, column, " ".join(line.strip(" */") for line in text.split("\n"))


def cpp_tokens(lines):
    """Yields (line, column, text) of comments, literals and numbers."""
    text = "\n".join(lines)
    number, at = 1, 0
    for match in CPP_TOKEN.finditer(text):
        number += text.count("\n", at, match.start())
        at = match.start()
        yield number, at - text.rfind("\n", 0, at) - 1, match[0]


def joined(lines, marks):
    """Joins comments that fill their lines with the comment on the line before; a trailing one begins a new comment, which
    only comments in its column continue."""
    first = last = 0
    parts, trails, column_before = [], False, 0
    for number, column, text in marks:
        alone = lines[number - 1][:column].strip() == ""
        if not (alone and parts and number == last + 1 and (not trails or column == column_before)):
            if parts:
                yield first, " ".join(parts)
            first, parts, trails = number, [], not alone
        parts.append(text)
        last, column_before = number, column
    if parts:
        yield first, " ".join(parts)


def docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if (text := ast.get_docstring(node)) is not None:
                yield node.body[0].lineno, " ".join(text.split())
