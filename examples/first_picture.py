"""Draws the README's picture from a report of `train_gpt --compare-stages 0,1,2,3 --report DIR`, such as the quickstart's:
memory of a rank at each stage as bars, and the losses of all stages.

usage: first_picture.py build/quickstart/report.json docs/stages.svg"""

import json
import pathlib
import sys

WIDTH, HEIGHT = 600, 330  # readable on a phone, at 340 pixels
PARTS = (("optimizer state", ("master_weights", "optimizer_state")), ("gradients", ("gradients",)), ("parameters", ("parameters",)),
         ("slots", ("parameter_slots", "gradient_slots")))
STYLE = """
.a { fill: #2f6db3 } .b { fill: #e08e2b } .c { fill: #4a9a5b } .d { fill: #b9bec5 }
text { font: 18px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1a1d21 }
.title { font-weight: 600 } .soft { fill: #59616b; font-size: 16px }
.rule { stroke: #c9ced4 } .curve { fill: none; stroke: #1a1d21; stroke-width: 2.5 } .page { fill: #ffffff }
@media (prefers-color-scheme: dark) {
  text { fill: #e8eaed } .soft { fill: #a3abb5 } .curve { stroke: #e8eaed } .rule { stroke: #454d57 } .page { fill: #14171b }
}"""


def bars(variants):
    """Returns the left half: a bar for each stage, of its model states and slots."""
    top, bottom, left, width, distance = 104, 268, 10, 52, 74
    sums = [{name: sum(variant["memory"][key]["peak"] for key in keys) / 2**20 for name, keys in PARTS} for variant in variants]
    scale = (bottom - top) / max(sum(parts.values()) for parts in sums)
    yield f'<text class="title" x="{left}" y="24">Memory of a rank, MiB</text>'
    for at, (name, _) in enumerate(PARTS):
        x, y = left + 152 * (at % 2), 46 + 22 * (at // 2)
        yield f'<rect class="{"abcd"[at]}" x="{x}" y="{y - 11}" width="12" height="12"/>'
        yield f'<text class="soft" x="{x + 18}" y="{y}">{name}</text>'
    for column, (variant, parts) in enumerate(zip(variants, sums)):
        x, y = left + column * distance, bottom
        for at, size in enumerate(parts.values()):
            y -= size * scale
            yield f'<rect class="{"abcd"[at]}" x="{x}" y="{y:.1f}" width="{width}" height="{size * scale:.1f}"/>'
        yield f'<text x="{x + width / 2}" y="{y - 6:.1f}" text-anchor="middle">{sum(parts.values()):.1f}</text>'
        yield f'<text class="soft" x="{x + width / 2}" y="{bottom + 20}" text-anchor="middle">{variant["name"]}</text>'
    yield f'<line class="rule" x1="{left}" x2="{left + 3 * distance + width}" y1="{bottom}" y2="{bottom}"/>'


def curve(variants):
    """Returns the right half: one curve, since all stages have the same losses. Raises SystemExit if they have not."""
    losses = [[step["loss_bits"] for step in variant["steps"]] for variant in variants]
    if any(other != losses[0] for other in losses):
        raise SystemExit("the losses differ between stages")
    values = [step["loss"] for step in variants[0]["steps"]]
    left, right, top, bottom = 340, 590, 104, 268
    low, high = min(values), max(values)
    points = " ".join(f"{left + (right - left) * i / (len(values) - 1):.1f},{bottom - 8 - (bottom - 8 - top) * (v - low) / (high - low):.1f}"
                      for i, v in enumerate(values))
    yield f'<text class="title" x="{left}" y="24">Loss of all four stages</text>'
    yield f'<text class="soft" x="{left}" y="46">one curve: equal bits</text><text class="soft" x="{left}" y="68">in each of {len(values)} steps</text>'
    yield f'<polyline class="curve" points="{points}"/>'
    yield f'<line class="rule" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>'
    yield f'<text class="soft" x="{left + 28}" y="{top + 8}">{high:.2f}</text>'
    yield f'<text class="soft" x="{right}" y="{bottom - 26}" text-anchor="end">{values[-1]:.2f}</text>'
    yield f'<text class="soft" x="{left}" y="{bottom + 20}">step 1</text>'
    yield f'<text class="soft" x="{right}" y="{bottom + 20}" text-anchor="end">{len(values)}</text>'


def main():
    report, picture = map(pathlib.Path, sys.argv[1:3])
    variants = json.loads(report.read_text())["variants"]
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
             'aria-label="Bytes per rank at stages 0 to 3, and the loss, which is equal at all of them">',
             f"<style>{STYLE}\n</style>", f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>', *bars(variants), *curve(variants),
             f'<text class="soft" x="10" y="{HEIGHT - 12}">examples/quickstart.sh: 3.6 M parameters in fp32, AdamW, 4 CPU ranks</text>', "</svg>"]
    picture.write_text("\n".join(lines) + "\n")


main()
