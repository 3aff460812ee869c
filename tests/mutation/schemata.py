"""Finds breakable places in C++ sources, and puts many mutants into one source, chosen at run time.

Untch's mutant schemata: an expression E becomes `(mutant_is(17) ? (broken E) : (E))`, so that one build holds all
mutants and the environment variable ZERO_MUTANT chooses one. Declarations are not wrapped, so lifetimes stay. The
rewriting handles brackets and separators, but no types: the caller drops mutants that do not compile.
"""

import dataclasses
import re
import zlib

NUMBERS = 1 << 20  # mutants have numbers below this

SWAPS = [
    (r"(?<=\s)<(?=\s)", "<="), (r"(?<=\s)<=(?=\s)", "<"), (r"(?<=\s)>(?=\s)", ">="), (r"(?<=\s)>=(?=\s)", ">"),
    (r"(?<=\s)==(?=\s)", "!="), (r"(?<=\s)!=(?=\s)", "=="), (r"(?<=\s)\+(?=\s)", "-"), (r"(?<=\s)-(?=\s)", "+"),
    (r"(?<=\s)\*(?=\s)", "+"), (r"(?<=\s)/(?=\s)", "*"), (r"(?<=\s)%(?=\s)", "/"), (r"(?<=\s)\+=(?=\s)", "-="),
    (r"(?<=\s)&&(?=\s)", "||"), (r"(?<=\s)\|\|(?=\s)", "&&"), (r"\btrue\b", "false"), (r"\bfalse\b", "true"),
    (r"(?<![\w.\"<])0(?![\w.\">])", "1"), (r"(?<![\w.\"<])1(?![\w.\">])", "0"), (r"(?<![\w.\"<])1(?![\w.\">])", "2"),
    (r"std::min\b", "std::max"), (r"std::max\b", "std::min"), (r"!(?=[\w(])", ""), (r"\+\+", "--"),
    (r"\bcontinue;", "break;"), (r"\bbreak;", "continue;"),
]
SKIPPED = re.compile(r"\s*(static_assert|using |#|template|case )|.*\bconstexpr\b")
KEYWORDS = r"(?:return|throw|delete|using|if|for|while|switch|case|else|do|goto|static_assert|break|continue|default)\b"
CALL = re.compile(rf"(?!{KEYWORDS})[\w.:\[\]>*-]+(?<!>)\(.*\)", re.S)
ASSIGNMENT = re.compile(rf"(?!{KEYWORDS})[\w.>\[\]*:-]+\s[-+|]?=\s.*", re.S)
QUOTED = re.compile(r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"
                    r"|^[ \t]*#(?:\\\n|[^\n])*", re.S | re.M)
# Chooses the mutant; if a file of `numbers` bytes is named, marks the reached mutants in it.
PRELUDE = """#pragma GCC diagnostic ignored "-Wnarrowing"
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
namespace mutation {
struct Choice {
  Choice() {
    if (const char* text = std::getenv("ZERO_MUTANT")) number = std::atoi(text);
    const char* path = std::getenv("ZERO_MUTANTS_REACHED");
    const int file = path == nullptr ? -1 : open(path, O_RDWR);
    if (file < 0) return;
    void* map = mmap(nullptr, numbers, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) reached = static_cast<char*>(map);
    close(file);
  }
  static constexpr int numbers = NUMBERS;
  int number = -1;
  char* reached = nullptr;
};
inline const Choice choice __attribute__((init_priority(101)));
}  // namespace mutation
[[maybe_unused]] static inline bool mutant_is(int number) {
  if (mutation::choice.reached != nullptr) mutation::choice.reached[number] = 1;
  return mutation::choice.number == number;
}
""".replace("NUMBERS", str(NUMBERS))


@dataclasses.dataclass
class Mutant:
    """The text between two places of a file, and its replacement."""
    file: str
    line: int
    begin: int
    end: int
    was: str
    broken: str
    kind: str = "value"  # or "call": a statement that is left out, or "jump": break and continue

    def __post_init__(self):
        self.number = zlib.crc32(f"{self.file}:{self.line}:{self.begin}:{self.broken}".encode()) % NUMBERS

    def choice(self, original):
        """The lines of `broken` carry the number, so that compiler errors can be assigned to it."""
        chosen = f"mutant_is({self.number})"
        broken = " ".join(self.broken.split("\n"))
        if self.kind == "jump":
            return f"{{\nif ({chosen}) {broken} else {original}\n}}"
        if self.kind == "call":
            return f"({chosen} ? void() : void({original}))"
        return f"({chosen} ? (\n/* mutant_is({self.number}) */ {broken}\n) : ({original}))"


def masked(text):
    """Returns the text at the same positions, with strings, comments and preprocessor lines blanked."""
    def mask(match):
        fill = "_" if match.group()[0] in "\"'R" else " "
        return re.sub(r"[^\n]", fill, match.group())
    return QUOTED.sub(mask, text)


def closing(code, at):
    """Returns the position of the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] in "([{") - (code[i] in ")]}")
        if depth == 0:
            return i
    return len(code)


def expression_around(code, at):
    """Returns (begin, end) of the smallest whole expression around a position: an argument, a condition, an arm, a
    side."""
    begin, depth = at, 0
    while begin > 0:
        c, before = code[begin - 1], code[begin - 2]
        if c in ")]" or (c == "}" and not re.match(r"\s*(\w|\+\+|--|\*)", code[begin:begin + 200])):
            depth += 1
        elif depth:
            depth += (c == "}") - (c in "([{")
        elif c in "([{},;?":
            break
        elif c == ":" or c == "=":
            if c == ":" and before == ":" or c == "=" and (before in "=!<>" or code[begin] == "="):
                begin -= 1
            else:
                break
        begin -= 1
    end, depth = at, 0
    while end < len(code):
        c = code[end]
        if depth == 0 and (c in ")]},;?" or (c == ":" and "::" not in code[end - 1:end + 2])):
            break
        depth += (c in "([{") - (c in ")]}")
        end += 1
    while True:
        begin += len(re.match(r"\s*", code[begin:end]).group())
        head = re.match(r"(?:return|else|throw|do|co_return)\b", code[begin:end])
        control = re.match(r"(?:if|for|while|switch)\s*(?:constexpr\s*)?\(", code[begin:end])
        if head:
            begin += head.end()
        elif control:
            begin = closing(code, begin + control.end() - 1) + 1
        else:
            return begin, len(code[:end].rstrip())


def mutants_of(file, text):
    """Returns everything that can be broken in a source."""
    code = masked(text)
    lines, starts = code.split("\n"), [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    text_lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        start = starts[number - 1]
        if not line.startswith("  ") or not line.strip() or SKIPPED.match(line):
            continue
        at = start + len(line) - len(line.lstrip())
        if re.search(r"(?:[;{})]|\belse)\s*$", code[:at][-300:]):
            end = expression_around(code, at)[1]
            statement = code[at:end]
            if code[end:end + 1] == ";" and (
                    ASSIGNMENT.fullmatch(statement) or
                    (CALL.fullmatch(statement) and closing(code, at + statement.index("(")) == end - 1)):
                yield Mutant(file, number, at, end, text[at:end], "", "call")
        for match in re.finditer(r"\bif \((?!const|auto|std)", line):
            begin = start + match.end()
            end = closing(code, begin - 1)
            begin = max(begin, code.rfind(";", begin, end) + 1)
            if code[begin:end].strip():
                yield Mutant(file, number, begin, end, text[begin:end], f"!({text[begin:end].strip()})")
        for pattern, replacement in SWAPS:
            for match in re.finditer(pattern, line):
                at, after = start + match.start(), start + match.end()
                if match.group().endswith(";"):
                    yield Mutant(file, number, at, after, match.group(), replacement, "jump")
                    continue
                begin, end = expression_around(code, at)
                if match.group()[0] == "+" and '"' in text[begin:end]:
                    continue  # joins text, so no other operator is possible
                if begin <= at and after <= end and "\n#" not in text[begin:end] and "//" not in text[begin:end]:
                    yield Mutant(file, number, begin, end, text[begin:end],
                                 text[begin:at] + replacement + text[after:end])


def with_choices(text, mutants):
    """Returns the source with all of its mutants, which may be nested."""
    def render(begin, end, inner):
        out, at = "", begin
        inner = sorted(inner, key=lambda m: (m.begin, -m.end))
        while inner:
            outer = inner.pop(0)
            nested = [m for m in inner if m.end <= outer.end]
            inner = [m for m in inner if m.end > outer.end]
            out += text[at:outer.begin] + outer.choice(render(outer.begin, outer.end, nested))
            at = outer.end
        return out + text[at:end]
    return PRELUDE + render(0, len(text), mutants)


def with_mutant(text, mutant):
    """Returns the source with one mutant in place."""
    return text[:mutant.begin] + (mutant.broken if mutant.kind != "call" else "void()") + text[mutant.end:]
