#!/usr/bin/env python3
"""The page of web/ in a real browser: every control is moved, and what it then shows is compared with the library on this machine.

Labels are the same, norms agree to 1e-6, errors of attention to 1e-3; nothing is said in the console and nothing is loaded; memory does
not grow; the page fits a phone; every control has a label and every picture a text. Exit 77 (skipped) without a browser or a page.
usage: browser.py BUILD-WASM NATIVE [SHARED]    the folder of `make web`, tests/web/native.c, the reference data"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import chromium

problems = []
# The same requests over and over, and the memory after each round.
REPEAT = """(async () => {
  const set = { scheme: 1, design: 1, sigma: 16, samples: 200, seed: 1 }, memory = [], ask = (...words) => plsh.library.ask(...words);
  for (let round = 0; round < 6; round++) {
    await ask("masks", set, 256, 3);
    await ask("norms", set, 256, 0.01);
    await ask("cells", set, [1, 2, 3, 4, 5, 6], 14, 0);
    await ask("attend", { n: 512, dim: 64, sigma: 16, causal: true, seed: 1 }, [0, 1, 2, 5].map(method => ({ method, design: 1, samples: 20, window: 64 })));
    memory.push(await ask("memory"));
  }
  return memory;
})()"""


def expect(true, what):
    if not true:
        problems.append(what)


class Native:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def close(a, b, tolerance):
    return a is None and b is None or a is not None and b is not None and abs(a - b) <= tolerance * abs(b) + 1e-12


def control(page, identifier, place):
    """Moves a slider or a choice, waits, and returns the state of its panel."""
    event = "change" if page.run(f"document.getElementById('{identifier}').tagName") == "SELECT" else "input"
    page.run(f"(() => {{ const e = document.getElementById('{identifier}'); e.value = {place}; e.dispatchEvent(new Event('{event}')); }})()")
    page.run("plsh.settled()")
    return page.run(f"plsh.state.{identifier.split('-')[0]}")


def controls(page, panel):
    """Of a panel: (identifier, places). A slider is moved to both ends and back to where it was."""
    found = page.run(f"[...document.querySelectorAll('#{panel}-controls input, #{panel}-controls select')]"
                     ".map(e => [e.id, e.tagName === 'SELECT' ? e.options.length : Number(e.max) + 1, Number(e.value)])")
    return [(name, [*range(count), value] if count < 5 else [0, count - 1, value]) for name, count, value in found]


def check_set(native, shown, where):
    if "error" in shown:
        return
    s, n = shown["set"], shown["n"]
    truth = native.ask("set", s["scheme"], s["design"], s["sigma"], s["samples"], s["seed"], n, 0.01)
    expect("error" not in truth, f"{where}: the library says {truth.get('error')}")
    if "error" in truth:
        return
    expect(shown["labels"] == truth["labels"], f"{where}: labels differ")
    norms = shown["norms"]
    found = [norms["spectral"], norms["max"], norms["largest"]], [norms["spectralBound"], norms["maxBound"], float(norms["certain"])]
    for name, mine, theirs in zip(("norms", "bounds"), found, (truth["norms"], truth["bounds"])):
        expect(all(close(a, b, 1e-6) for a, b in zip(mine, theirs)), f"{where}: {name} {mine}, the library has {theirs}")


def move_masks(page, native):
    shown = 0
    control(page, "masks-controls-n", 2)
    for name, places in controls(page, "masks"):
        for place in places:
            state = control(page, name, place)
            check_set(native, state, f"{name} at {place}")
            shown += "error" not in state
    expect(shown > 12, f"only {shown} sets were drawn")
    names = page.run("plsh.state.names")
    hidden = "[...document.querySelectorAll('#masks-pictures > *')].map(e => e.hidden), document.getElementById('masks-pictures').hidden"
    state = control(page, "masks-controls-design", names["designs"].index("golden-shifted"))
    check_set(native, state, "golden-shifted")
    expect(page.run(f"[{hidden}]") == [[True] * 3 + [False] * 3, False], "golden-shifted: the mean is shown, and no single masks")
    control(page, "masks-controls-scheme", names["schemes"].index("cuts"))
    expect("error" in control(page, "masks-controls-design", names["designs"].index("golden")), "golden was drawn by cuts")
    expect(page.run("document.getElementById('masks-pictures').hidden"), "pictures of another set are shown beside the error")
    control(page, "masks-controls-scheme", names["schemes"].index("integer"))
    expect(not page.run("document.getElementById('masks-pictures').hidden"), "the pictures did not come back")
    control(page, "masks-controls-design", names["designs"].index("stratified"))
    rows = page.run("plsh.state.masks.rows")
    expect(len(rows) > 10 and rows[-1]["spectral"] < rows[0]["spectral"] / 5, "the norms do not fall with s")


def move_plane(page, native):
    for name, places in controls(page, "plane"):
        for place in places:
            check_plane(native, control(page, name, place), f"{name} at {place}")
    before = len(page.run("plsh.state.plane.points"))
    box = page.run("(() => { const c = document.getElementById('plane-picture'); c.scrollIntoView(); const b = c.getBoundingClientRect();"
                   "return [b.left, b.top, b.width]; })()")
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=box[0] + 0.3 * box[2], y=box[1] + 0.8 * box[2], button="left", clickCount=1)
    page.run("plsh.settled()")
    expect(len(page.run("plsh.state.plane.points")) == before + 2, "a click adds no point")
    for key in ("ArrowUp", "ArrowUp", "ArrowUp", "Enter"):
        page.run(f"document.getElementById('plane-picture').dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}', bubbles: true }}))")
    page.run("plsh.settled()")
    state = page.run("plsh.state.plane")
    expect(len(state["points"]) == before + 4, "Enter adds no point")
    check_plane(native, state, "points added")
    for _ in range(2):
        page.run("document.getElementById('plane-picture').dispatchEvent(new KeyboardEvent('keydown', { key: 'Delete', bubbles: true }))")
    page.run("plsh.settled()")
    expect(len(page.run("plsh.state.plane.points")) == before, "Delete removes no point")


def check_plane(native, state, where):
    s = state["set"]
    truth = native.ask("cells", s["sigma"], s["samples"], s["seed"], *state["points"])
    expect(truth.get("labels") == state["labels"], f"plane, {where}: labels differ")


def move_attention(page, native):
    names = page.run("plsh.state.names")
    for name, places in [("attention-controls-longest", [0]), *controls(page, "attention")]:
        for place in ([0] if name.endswith("longest") else places[-2:]):
            state = control(page, name, place)
    last = [row for row in state["rows"] if row["n"] == 256]
    expect(len(last) == 4, f"{len(last)} methods were measured")
    settings = page.run("plsh.state.attention.settings")
    for row in last:
        truth = native.ask("attend", 256, 64, settings["sigma"], 1, names["methods"].index(row["name"]), settings["design"], row["samples"], settings["window"])
        error = truth["errors"][0]
        good = row["error"] < 1e-6 and error < 1e-6 if row["name"] in ("dense", "exact") else close(row["error"], error, 1e-3)
        expect(good, f"attention, {row['name']}: error {row['error']}, the library has {error}")
    # Both kernels of the module against each other, on lengths that fill no tile.
    for n in (1, 7, 33, 257):
        found = page.run(f"plsh.library.ask('attend', {{ n: {n}, dim: 40, sigma: 8, causal: true, seed: 3 }}, [0, 1].map(isa => ({{ method: 0, isa }})))")
        expect(all(row["error"] < 1e-6 for row in found), f"dense at n = {n}: {found}")


def generate(page, native, folder):
    """A model is given to the page; its text is that of the library, token for token."""
    if not page.run("document.getElementById('model') !== null"):
        return print("the page was made without language models")
    files = [str(folder / name) for name in ("config.json", "tokenizer.json", "model.safetensors")]
    document = page.call("DOM.getDocument")["root"]["nodeId"]
    node = page.call("DOM.querySelector", nodeId=document, selector="#model-files")["nodeId"]
    page.call("DOM.setFileInputFiles", nodeId=node, files=files)
    page.run("plsh.settled()")
    expect(page.run("plsh.state.model?.facts.family") == "Llama", "the model was not read: " + page.run("document.getElementById('model-facts').textContent"))
    names = page.run("plsh.state.names.methods")
    control(page, "model-controls-tokens", 2)
    for place, name in enumerate(["its own", "exact", "window", "plsh", "none"]):
        control(page, "model-controls-attention", place)
        page.run("document.getElementById('model-run').click()")
        page.run("plsh.settled()")
        run = page.run("plsh.state.model.runs.at(-1)") or {"name": None, "ids": []}
        truth = native.ask("generate", folder, names.index(name) if name in names else -1, 20, 32, "Once upon a time")
        expect(run["name"] == name and run["ids"] == truth.get("ids"), f"{name}: tokens {run['ids']}, the library has {truth}")
    said = page.run("document.getElementById('model-text').textContent")
    expect(said.startswith("Once upon a time") and len(said) > 40, f"the text is {said!r}")


def check_form(page):
    for width, dark in ((375, False), (1100, True)):
        page.screen(width, 900, dark, phone=width < 500)
        wide = page.run("document.documentElement.scrollWidth")
        expect(wide <= width, f"the page is {wide} px wide on {width} px")
        paper = page.run("getComputedStyle(document.body).backgroundColor")
        expect((sum(map(int, paper[4:-1].split(","))) < 384) == dark, f"the paper is {paper}")
    expect(page.run("[...document.querySelectorAll('input, select, textarea')].every(e => e.labels.length > 0)"), "a control has no label")
    page.run("plsh.settled()")
    expect(page.run("[...document.querySelectorAll('figure:not([hidden]) > canvas, #plane-picture')].every(e => e.getAttribute('aria-label'))"),
           "a picture has no text")
    expect(page.run("new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size === document.querySelectorAll('[id]').length"), "an id is there twice")


def main():
    build, browser = Path(sys.argv[1]), chromium.find()
    if browser is None or not (build / "plsh.html").exists():
        print("skipped: " + ("no chromium here" if browser is None else "no page: make web builds it, where clang, lld and wasi-libc are installed"))
        return 77
    size = (build / "plsh.html").stat().st_size
    expect(size < 1e6, f"the page has {size} bytes")
    native = Native(sys.argv[2])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        page = chromium.Page(browser, Path(profile))
        page.screen(1100, 900)
        page.open(build / "plsh.html")
        page.run("plsh.ready.then(plsh.settled)")
        memory = []
        for _ in range(2):
            move_masks(page, native)
            move_plane(page, native)
            move_attention(page, native)
            memory.append(page.run("plsh.library.ask('memory')"))
        expect(memory[-1] - memory[0] < 1 << 20, f"memory grows: {memory} bytes") # what is computed depends on the time of requests
        same = page.run(REPEAT)
        expect(len(set(same[1:])) == 1, f"memory grows: {same} bytes")
        model = Path(sys.argv[3] if len(sys.argv) > 3 else "").resolve() / "data/models/stories260k" # the browser refuses paths with ..
        if model.is_dir():
            generate(page, native, model)
        else:
            print("no stories260k here: no text is generated")
        check_form(page)
        problems.extend(page.said)
        print(f"{size} bytes, first picture after {page.run('plsh.state.firstPicture'):.0f} ms, {memory[-1]} bytes of memory")
        page.close()
    for problem in problems:
        print(problem)
    print(f"web: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
