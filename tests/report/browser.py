#!/usr/bin/env python3
"""The page of plsh report in a real browser: on a phone and on a desk, by day and by night.

Every tag is closed; nothing is loaded and nothing is said in the console; no part is wider than a phone; every plot is there,
within its frame, with text that can be read; colours have contrast. Exit 77 (skipped) where there is no browser.
usage: browser.py PLSH [FOLDER]    the program; the folder keeps the page and pictures of it"""
import html.parser
import json
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path

PLOTS, MATRICES, WIDTHS = 16, 4, (360, 1100)
VOID = {"meta", "br", "hr", "img", "input", "link"}
here = Path(__file__).resolve().parent
problems = []

# Runs around the page, which is in a frame of the width of each screen: what it looks like there.
PROBE = """
<!doctype html><meta charset="utf-8"><body><script>
const page = %s, widths = %s, found = [];
function luminance(colour) {
  const part = colour.match(/[\\d.]+/g).slice(0, 3).map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
}
function contrast(a, b) {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
}
function outside(svg) {
  const box = svg.viewBox.baseVal, bad = [];
  for (const part of svg.querySelectorAll("path, circle, text")) {
    const b = part.getBBox();
    if (b.x < -0.5 || b.y < -0.5 || b.x + b.width > box.width + 0.5 || b.y + b.height > box.height + 0.5)
      bad.push(part.tagName + " " + (part.textContent || part.getAttribute("d") || "").slice(0, 40));
  }
  return bad;
}
function look(frame, width) {
  const doc = frame.contentDocument, view = frame.contentWindow, paper = view.getComputedStyle(doc.body).backgroundColor;
  const plots = [...doc.querySelectorAll("svg.plot")], style = (e, name) => view.getComputedStyle(e)[name];
  found.push({
    width, paper, scroll: doc.documentElement.scrollWidth,
    matrices: [...doc.querySelectorAll("svg.matrix")].filter(m => m.querySelectorAll("path").length > 0).length,
    plots: plots.map(p => ({
      title: p.querySelector("title").textContent, outside: outside(p),
      marks: p.querySelectorAll("circle").length, shapes: [...p.querySelectorAll(".line, .band")].filter(l => l.getTotalLength() > 0).length,
      letters: Math.min(...[...p.querySelectorAll("text")].map(t => parseFloat(style(t, "fontSize")))) * p.clientWidth / p.viewBox.baseVal.width,
    })),
    text: Math.min(...[...doc.querySelectorAll("p, td, th, li, figcaption, code")].map(e => contrast(style(e, "color"), paper))),
    lines: Math.min(...[...doc.querySelectorAll(".line")].map(e => contrast(style(e, "stroke"), paper))),
  });
}
for (const width of widths) {
  const frame = document.createElement("iframe");
  frame.style = `width: ${width}px; height: 900px; border: 0`;
  frame.onload = () => {
    look(frame, width);
    if (found.length === widths.length) document.body.innerHTML = "<pre id=found>" + encodeURIComponent(JSON.stringify(found)) + "</pre>";
  };
  frame.srcdoc = page;
  document.body.append(frame);
}
</script>
"""


class Tags(html.parser.HTMLParser):
    """Every tag that opens is closed, in order."""
    def __init__(self):
        super().__init__()
        self.open, self.ids = [], set()

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name == "id" and value in self.ids:
                problems.append(f"the id {value} is there twice")
            if name in ("src", "href"):
                problems.append(f"<{tag} {name}={value}> points out of the page")
        self.ids |= {value for name, value in attributes if name == "id"}

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            problems.append(f"</{tag}> at line {self.getpos()[0]} closes nothing")


def chromium(browser, *options):
    base = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", "--v=0"]
    return subprocess.run([*base, *options], capture_output=True, text=True, timeout=120)


def check(look, scheme):
    where = f"{scheme}, {look['width']} px"
    expect = lambda true, what: problems.append(f"{where}: {what}") if not true else None
    expect(look["scroll"] <= look["width"], f"the page is {look['scroll']} px wide")
    expect(len(look["plots"]) == PLOTS, f"{len(look['plots'])} plots, expected {PLOTS}")
    expect(look["matrices"] == MATRICES, f"{look['matrices']} matrices, expected {MATRICES}")
    dark = sum(map(int, re.findall(r"\d+", look["paper"])[:3])) < 3 * 128
    expect(dark == (scheme == "dark"), f"the paper is {look['paper']}")
    expect(look["text"] >= 4.5, f"text has a contrast of {look['text']:.2f}")
    expect(look["lines"] >= 3, f"lines have a contrast of {look['lines']:.2f}")
    for plot in look["plots"]:
        expect(plot["marks"] > 0 and plot["shapes"] > 0, f"{plot['title']}: nothing is drawn")
        expect(plot["letters"] >= 10, f"{plot['title']}: letters of {plot['letters']:.1f} px")
        expect(not plot["outside"], f"{plot['title']}: out of its frame: {plot['outside']}")


def main():
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        print("skipped: no chromium here (scripts/dependencies.sh names the package)")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[2] if len(sys.argv) > 2 else scratch).resolve()
        page = folder / "report.html"
        subprocess.run([sys.argv[1], "report", "--quick", "--out", str(page), "--experiments", str(here / "experiments"), "--quiet"],
                       check=True, stdout=subprocess.DEVNULL)
        text = page.read_text(encoding="utf-8")
        tags = Tags()
        tags.feed(text)
        tags.close()
        if tags.open:
            problems.append(f"never closed: {tags.open}")
        # Nothing may be loaded: what tries is said in the console.
        policy = '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src \'unsafe-inline\'">'
        guarded = json.dumps(text.replace("<head>", "<head>" + policy, 1)).replace("</", "<\\/")
        probe = folder / "probe.html"
        probe.write_text(PROBE % (guarded, json.dumps(WIDTHS)), encoding="utf-8")
        for scheme, number in (("light", 1), ("dark", 0)):
            run = chromium(browser, f"--blink-settings=preferredColorScheme={number}", "--virtual-time-budget=10000", "--dump-dom", probe.as_uri())
            problems.extend(f"{scheme}: console: {line}" for line in run.stderr.splitlines() if "CONSOLE" in line)
            found = re.search(r'<pre id="found">([^<]*)</pre>', run.stdout)
            if found is None:
                sys.exit(f"{browser} did not render the page: {run.stderr[-2000:]}")
            for look in json.loads(urllib.parse.unquote(found[1])):
                check(look, scheme)
    for problem in problems:
        print(problem)
    print(f"browser: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
