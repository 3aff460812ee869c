"""Reports as a browser shows them: light, dark, printed, and on a phone. Keeps the pictures for people.

usage: report_browser_test.py REPORT_SAMPLE FOLDER_FOR_PICTURES    Exits with 77 if there is no browser.
"""

import json
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import browser  # noqa: E402

SAMPLE, PICTURES = sys.argv[1], pathlib.Path(sys.argv[2])
SAMPLES = ("plain", "awkward", "least", "gpu", "plan", "mixed", "failed", "nothing")
# Views of the page: width, color scheme, medium. Paper is light even if the reader's system prefers dark.
VIEWS = {"light": (1100, "light", "screen"), "dark": (1100, "dark", "screen"), "tablet": (768, "light", "screen"),
         "between": (700, "light", "screen"), "phone": (390, "light", "screen"),
         "small phone": (360, "dark", "screen"), "print": (688, "dark", "print")}

# Returns problems of the page in words, from the browser's layout.
INSPECT = r"""
const problems = [];
const inside = (a, b, slack = 1) => a.left >= b.left - slack && a.right <= b.right + slack &&
                                    a.top >= b.top - slack && a.bottom <= b.bottom + slack;
const apart = (a, b) => a.right <= b.left + 0.5 || b.right <= a.left + 0.5 || a.bottom <= b.top + 3 ||
                        b.bottom <= a.top + 3;
const channels = text => text.match(/[\d.]+/g).slice(0, 3).map(Number);
const luminance = color => {
  const [r, g, b] = channels(color).map(c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => {
  const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (light + 0.05) / (dark + 0.05);
};
const background = element => {
  for (; element; element = element.parentElement) {
    const color = getComputedStyle(element).backgroundColor;
    if (!/^rgba\(.*, 0\)$/.test(color)) return color;
  }
  return "rgb(255, 255, 255)";
};
const legible = (what, color, behind) => {
  if (contrast(color, behind) < 4.5) problems.push(`${what}: ${color} on ${behind}`);
};
const shown = svg => getComputedStyle(svg).display !== "none";
const charts = [...document.querySelectorAll("svg")].filter(shown);
if (charts.length !== document.querySelectorAll("svg").length / 2) problems.push("not one of each two drawings is shown");
for (const svg of charts) {
  const frame = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll("text")];
  const boxes = texts.map(text => text.getBoundingClientRect());
  const bars = [...svg.querySelectorAll("rect.bar")].map(bar => [bar, bar.getBoundingClientRect()]);
  texts.forEach((text, i) => {
    const what = `"${text.textContent}" in ${svg.getAttribute("aria-label")}`;
    if (!inside(boxes[i], frame)) problems.push(`${what} is cut off`);
    const size = parseFloat(getComputedStyle(text).fontSize) * frame.width / svg.viewBox.baseVal.width;
    if (matchMedia("screen").matches && size < 10) problems.push(`${what} is ${size} px high`);
    for (let k = i + 1; k < texts.length; ++k)
      if (!apart(boxes[i], boxes[k])) problems.push(`${what} and "${texts[k].textContent}" overlap`);
    const own = bars.find(([bar, box]) => inside(boxes[i], box, 2));
    if (text.matches(".value") && !own) problems.push(`${what} leaves its bar`);
    if (!text.matches(".value") && bars.some(([bar, box]) => !apart(boxes[i], box)))
      problems.push(`${what} is on a bar`);
    legible(what, getComputedStyle(text).fill, own ? getComputedStyle(own[0]).fill : background(svg));
  });
  for (const [bar, box] of bars)
    if (!inside(box, frame)) problems.push("a bar leaves its chart");
  if (frame.left < 0 || frame.right > innerWidth + 1) problems.push("a chart leaves the window");
  for (let e = svg.parentElement; e; e = e.parentElement)
    if (/auto|scroll|hidden/.test(getComputedStyle(e).overflowX)) problems.push("a chart is in a part that scrolls");
}
for (const section of document.querySelectorAll("section, dl, table, ul, .verdict"))
  if (section.textContent.trim() === "") problems.push(`an empty ${section.tagName}`);
for (const row of document.querySelectorAll("tbody tr:not(.heading)"))
  if ([...row.querySelectorAll("td")].every(cell => /^[0.]*$/.test(cell.textContent)))
    problems.push(`a row of zeros: ${row.textContent}`);
for (const element of document.querySelectorAll("h1, h2, p, dt, dd, li, th, td, footer")) {
  if (element.textContent.trim() === "") continue;
  const what = `"${element.textContent.trim().slice(0, 40)}"`;
  if (element.scrollWidth > element.clientWidth + 1) problems.push(`${what} is cut off`);
  legible(what, getComputedStyle(element).color, background(element));
}
if (document.documentElement.scrollWidth > innerWidth + 1)
  problems.push(`the page is ${document.documentElement.scrollWidth} wide, the window ${innerWidth}`);
for (const cell of document.querySelectorAll("td"))
  if (getComputedStyle(cell).textAlign !== "right") problems.push("a number is not right-aligned");
return problems;
"""

# Returns the bars of a chart, as fractions of the page: position, width, color.
BARS = r"""
const charts = [...document.querySelectorAll("svg")].filter(
  svg => svg.querySelector("rect.bar") && getComputedStyle(svg).display !== "none");
return charts.map(svg => {
  const frame = svg.getBoundingClientRect();
  return {frame: [frame.left + scrollX, frame.top + scrollY, frame.width, frame.height],
          bars: [...svg.querySelectorAll("rect.bar")].map(bar => {
            const box = bar.getBoundingClientRect();
            return {x: box.left - frame.left, y: box.top - frame.top, width: box.width, title: bar.textContent,
                    color: getComputedStyle(bar).fill.match(/\d+/g).map(Number)};
          })};
});
"""
PAGE_COLOR = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for sample in SAMPLES:
            subprocess.run([SAMPLE, sample, PICTURES / sample], check=True)
        cls.browser = browser.Browser().__enter__()
        cls.addClassCleanup(cls.browser.__exit__)

    def show(self, sample, view):
        width, scheme, medium = VIEWS[view]
        self.browser.resize(width, 900)
        self.browser.media(scheme, medium)
        self.browser.open(PICTURES / sample / "report.html")

    def test_nothing_is_cut_off_overlaps_or_is_illegible(self):
        for sample in SAMPLES:
            for view in VIEWS:
                with self.subTest(sample=sample, view=view):
                    self.show(sample, view)
                    self.browser.picture(PICTURES / sample / f"{view}.png")
                    self.assertEqual(self.browser.run(INSPECT), [])

    def test_the_inspection_sees_faults(self):
        faults = {"is cut off": "document.querySelector('svg .sum').setAttribute('x', 910)",
                  "overlap": "const t = document.querySelectorAll('svg .sum'); t[1].setAttribute('y', "
                             "t[0].getAttribute('y'))",
                  "leaves its bar": "document.querySelector('svg .value').setAttribute('y', 1)",
                  "rgb(240, 240, 240) on": "document.querySelector('h1').style.color = 'rgb(240, 240, 240)'",
                  "the window 1100": "document.querySelector('.facts').style.width = '1300px'",
                  "leaves the window": "document.querySelector('svg.wide').style.width = '1300px'",
                  "a row of zeros": "document.querySelectorAll('tr.part td').forEach(c => c.textContent = '0.00')",
                  "an empty DL": "document.querySelector('.facts').textContent = ''"}
        for problem, fault in faults.items():
            with self.subTest(problem=problem):
                self.show("plain", "light")
                self.browser.run(fault)
                self.assertIn(problem, "\n".join(self.browser.run(INSPECT)))

    def test_bars_are_in_the_picture_and_as_long_as_the_figures_say(self):
        report = json.loads((PICTURES / "plain" / "report.json").read_text())
        for view in VIEWS:
            with self.subTest(view=view):
                self.show("plain", view)
                charts = self.browser.run(BARS)
                self.assertEqual(len(charts), 3)
                memory = [use["peak"] for variant in report["variants"] for use in variant["memory"].values()
                          if use["peak"] > 0]
                widths = [bar["width"] for bar in charts[0]["bars"]]
                self.assertEqual(len(widths), len(memory))
                for width, size in zip(widths, memory):
                    self.assertAlmostEqual(width / widths[0], size / memory[0], delta=0.01)
                self.check_colors(charts[0], self.browser.run(PAGE_COLOR))

    def check_colors(self, chart, page):
        rows = self.browser.pixels(*chart["frame"])
        for bar in chart["bars"]:
            pixel = rows[round(bar["y"]) + 4][round(bar["x"]) + 4]
            self.assertEqual(list(pixel), bar["color"], bar["title"])
        self.assertEqual(list(rows[2][2]), page[:3])

    def test_pages_are_light_or_dark_as_the_reader_prefers_and_paper_is_light(self):
        for view, (_, scheme, medium) in VIEWS.items():
            self.show("plain", view)
            brightness = sum(self.browser.run(PAGE_COLOR)[:3])
            if (scheme, medium) == ("dark", "screen"):
                self.assertLess(brightness, 3 * 48, view)
            else:
                self.assertGreater(brightness, 3 * 240, view)

    def test_it_prints_on_few_pages(self):
        self.show("plain", "light")
        self.browser.media("dark")
        self.browser.printed(PICTURES / "plain" / "print.pdf")
        pages = (PICTURES / "plain" / "print.pdf").read_bytes().count(b"/Type /Page\n")
        self.assertIn(pages, (2, 3))

    def test_losses_that_are_equal_share_a_curve(self):
        curves = "return document.querySelectorAll('svg.wide path.curve').length"
        for sample, expected in (("plain", 1), ("awkward", 3), ("least", 1)):
            self.show(sample, "light")
            self.assertEqual(self.browser.run(curves), expected, sample)

    def test_what_did_not_run_looks_unlike_what_is_well(self):
        style = ("const s = getComputedStyle(document.querySelector('.verdict'));"
                 "const mark = getComputedStyle(document.querySelector('.verdict p'), '::before').content;"
                 "return [s.backgroundColor, s.borderTopStyle, mark]")
        looks = {}
        for sample in SAMPLES:
            self.show(sample, "light")
            looks[sample] = tuple(self.browser.run(style))
        self.assertEqual(looks["plain"], looks["gpu"])
        self.assertEqual(looks["failed"], looks["nothing"])
        self.assertEqual(looks["failed"], looks["awkward"])
        self.assertEqual(len({looks[sample] for sample in ("plain", "failed", "plan", "mixed")}), 4, looks)

    def test_names_are_text(self):
        self.show("awkward", "light")
        self.assertEqual(self.browser.run("return document.querySelectorAll('script').length"), 0)
        self.assertTrue(self.browser.run("return document.querySelector('.subtitle').textContent")
                        .startswith("<script>alert(1)</script> \"&' | *x*"))


if __name__ == "__main__":
    if missing := browser.missing():
        print(f"skipped: {missing}")
        sys.exit(77)
    PICTURES.mkdir(parents=True, exist_ok=True)
    unittest.main(argv=sys.argv[:1])
