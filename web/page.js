// The page: asks the library, which lives in a worker, and draws what it answers.
"use strict";

const SINGLES = 3, DELTA = 0.01, AXIS = { linear: 0, tens: 1, twos: 2 }, STYLE = { line: 0, dashes: 1 };
const byId = id => document.getElementById(id);
const state = {}; // what the panels show: the tests read it

// ---- The library -------------------------------------------------------------------------------

const library = {
  waiting: new Map(), count: 0,
  async begin() {
    const gzip = new Blob([Uint8Array.from(atob(byId("module").textContent), letter => letter.charCodeAt(0))]);
    const code = await new Response(gzip.stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
    this.worker = new Worker(URL.createObjectURL(new Blob([byId("worker-source").textContent], { type: "text/javascript" })));
    this.worker.onmessage = ({ data: { id, result, error } }) => {
      const { resolve, reject } = this.waiting.get(id);
      this.waiting.delete(id);
      if (error === undefined) resolve(result); else reject(new Error(error));
    };
    return this.ask("create", code);
  },
  ask(call, ...args) {
    return new Promise((resolve, reject) => {
      this.waiting.set(++this.count, { resolve, reject });
      this.worker.postMessage({ id: this.count, call, args });
    });
  },
};

// Runs `work` for the newest settings only: a change during it makes it run again at its end. work(stale) may stop early.
function latest(work) {
  let running = null, again = false;
  const run = async () => {
    do { again = false; await work(() => again); } while (again);
  };
  const request = () => {
    again = true;
    running ??= run().catch(error => { byId("status").textContent = `Failed: ${error.message}`; }).finally(() => { running = null; });
    return running;
  };
  request.settled = async () => { while (running) await running; };
  return request;
}

// ---- Controls ----------------------------------------------------------------------------------

const round = x => Number.isInteger(x) ? String(x) : x.toPrecision(3);

// A slider over a list of values: `get()` is the value at its place.
function slider(form, name, label, values, first, changed) {
  const box = document.createElement("label"), shown = document.createElement("output"), input = document.createElement("input");
  Object.assign(input, { type: "range", min: 0, max: values.length - 1, step: 1, value: values.indexOf(first), name, id: `${form.id}-${name}` });
  box.htmlFor = input.id;
  const show = () => {
    shown.textContent = round(values[input.value]);
    input.setAttribute("aria-valuetext", `${label}: ${round(values[input.value])}`);
  };
  input.addEventListener("input", () => { show(); changed(); });
  box.append(label, shown, input);
  form.append(box);
  show();
  return { get: () => values[input.value], input };
}

function choice(form, name, label, names, first, changed) {
  const box = document.createElement("label"), select = document.createElement("select");
  Object.assign(select, { name, id: `${form.id}-${name}` });
  names.forEach((text, i) => select.append(new Option(text, i, false, text === first)));
  select.addEventListener("change", changed);
  box.append(label, select);
  form.append(box);
  return { get: () => Number(select.value), name: () => names[select.value], select };
}

// ---- Drawing -----------------------------------------------------------------------------------

function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const rgb = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return rgb;
}

function figure(parent, caption) {
  const box = document.createElement("figure"), canvas = document.createElement("canvas"), text = document.createElement("figcaption");
  canvas.setAttribute("role", "img");
  text.textContent = caption;
  box.append(canvas, text);
  parent.append(box);
  return { box, canvas, text };
}

// value(i) in -1..1 of entry i: paper at 0, one colour at 1, another at -1.
function drawMatrix(canvas, n, value, alternative) {
  const paper = colour("paper"), high = colour("c0"), low = colour("c1"), image = new ImageData(n, n);
  for (let i = 0; i < n * n; i++) {
    const v = Math.max(-1, Math.min(1, value(i))), ink = v < 0 ? low : high, part = Math.abs(v);
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = paper[c] + part * (ink[c] - paper[c]);
    image.data[4 * i + 3] = 255;
  }
  canvas.width = canvas.height = n;
  canvas.getContext("2d").putImageData(image, 0, 0);
  canvas.setAttribute("aria-label", alternative);
}

async function drawPlot(id, plot) {
  const html = await library.ask("plot", plot), box = byId(id);
  const caption = document.createElement("figcaption");
  caption.textContent = plot.title;
  box.innerHTML = html;
  box.prepend(caption);
}

const percent = x => `${(100 * x).toPrecision(3)} %`;
const short = x => Number.isNaN(x) ? "none known" : x.toPrecision(3);

// ---- Masks -------------------------------------------------------------------------------------

const SAMPLES = [1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000, 2000, 4000];
const SIGMAS = [1, 2, 4, 8, 16, 32, 64, 128];

function masksPanel(names) {
  const form = byId("masks-controls"), shown = ["masks-pictures", "masks-spectral", "masks-max"].map(byId);
  const update = latest(async stale => {
    const set = { scheme: scheme.get(), design: design.get(), sigma: sigma.get(), samples: samples.get(), seed: seed.get() };
    try {
      await draw(set, n.get());
      shown.forEach(box => { box.hidden = false; });
    } catch (error) { // a set that cannot be drawn: the library says why, and pictures of another set would be wrong
      shown.forEach(box => { box.hidden = true; });
      byId("masks-numbers").textContent = error.message;
      state.masks = { error: error.message };
      return;
    }
    await curves(set, n.get(), stale);
  });
  const n = slider(form, "n", "positions n", [16, 32, 64, 128, 256, 512], 128, update);
  const sigma = slider(form, "sigma", "reach σ", SIGMAS, 16, update);
  const samples = slider(form, "samples", "masks s", SAMPLES, 20, update);
  const seed = slider(form, "seed", "seed", Array.from({ length: 20 }, (_, i) => i + 1), 1, update);
  const scheme = choice(form, "scheme", "scheme: how one is cut", names.schemes, "integer", update);
  const design = choice(form, "design", "design: how they belong together", names.designs, "stratified", update);

  const parent = byId("masks-pictures");
  const single = Array.from({ length: SINGLES }, (_, i) => figure(parent, `mask ${i + 1}`));
  const mean = figure(parent, "mean M̃"), alibi = figure(parent, "ALiBi L*"), difference = figure(parent, "difference");

  async function draw(set, size) {
    const found = await library.ask("masks", set, size, SINGLES);
    single.forEach(({ box, canvas }, k) => {
      const labels = found.labels[k];
      box.hidden = labels === undefined;
      if (labels !== undefined)
        drawMatrix(canvas, size, i => labels[i % size] === labels[Math.floor(i / size)] ? 1 : 0, `mask ${k + 1}: ${labels[size - 1] + 1} blocks`);
    });
    drawMatrix(mean.canvas, size, i => found.mean[i], `mean of ${set.samples} masks`);
    drawMatrix(alibi.canvas, size, i => found.decay[i], `ALiBi with σ = ${set.sigma}`);
    const norms = await library.ask("norms", set, size, DELTA);
    drawMatrix(difference.canvas, size, i => (found.mean[i] - found.decay[i]) / norms.max, `difference, at most ${short(norms.max)}`);
    difference.text.textContent = `difference × ${short(1 / norms.max)}`;
    byId("masks-numbers").textContent = `With ${set.samples} ${set.samples === 1 ? "mask" : "masks"}: the largest entry of M̃ − L* is ${short(norms.max)}` +
      ` (bound ${short(norms.maxBound)}${norms.certain ? ", certain" : ""}), its spectral norm ${short(norms.spectral)} (bound ${short(norms.spectralBound)});` +
      ` the longest block has ${norms.largest} positions.`;
    state.masks = { set, n: size, labels: found.labels.map(l => [...l]), mean: found.mean, norms };
    state.firstPicture ??= performance.now();
  }

  // The norms as s grows. Three requests at most are drawn in between, so that the curves are seen to grow.
  async function curves(set, size, stale) {
    const rows = [];
    for (const s of SAMPLES.filter(s => s <= 1000)) {
      if (stale()) return;
      rows.push(await library.ask("norms", { ...set, samples: s }, size, DELTA).catch(() => null));
      if (rows.length % 6 === 0) await plots(rows);
    }
    await plots(rows);
    state.masks.rows = rows;
  }
  async function plots(rows) {
    const there = rows.filter(row => row !== null), last = there[there.length - 1];
    for (const [id, title, key] of [["masks-spectral", "Spectral norm of M̃ − L*", "spectral"], ["masks-max", "Largest entry of M̃ − L*", "max"]]) {
      const bound = key === "max" && last?.certain ? "bound, certain" : "bound, 99 in 100";
      await drawPlot(id, {
        title, x: ["masks s", AXIS.tens], y: ["norm", AXIS.tens],
        series: [{ style: STYLE.line, colour: 0, name: "measured", marks: there.map(r => [r.samples, r[key]]) },
                 { style: STYLE.dashes, colour: 1, name: bound, marks: there.map(r => [r.samples, r[key + "Bound"]]) }],
      });
    }
  }
  return update;
}

// ---- Attention ---------------------------------------------------------------------------------

const SLOWEST = 700; // ms: a method that took longer is not run at the next length

function attentionPanel(names) {
  const form = byId("attention-controls"), button = byId("attention-run"), told = byId("attention-state");
  const methods = ["dense", "exact", "window", "plsh"].map((name, colour) => ({ name, colour, method: names.methods.indexOf(name) }));
  const update = latest(async stale => {
    button.disabled = true;
    const rows = [], counts = [];
    await overLengths(rows, stale);
    if (!stale()) await overSamples(counts, stale);
    table([...rows, ...counts]);
    told.textContent = stale() ? "" : "Done.";
    state.attention = { rows, counts, settings: { sigma: sigma.get(), design: design.get(), window: Math.ceil(reach.get() * sigma.get()) } };
    button.disabled = false;
  });
  const problem = n => ({ n, dim: 64, sigma: sigma.get(), causal: true, seed: 1 });
  const run = (method, s) => ({ method, design: design.get(), samples: s, window: Math.ceil(reach.get() * sigma.get()), repeats: 2 });
  const sigma = slider(form, "sigma", "reach σ", [4, 8, 16, 32, 64, 128], 32, update);
  const samples = slider(form, "samples", "partitions s", [1, 2, 5, 10, 20, 50, 100, 200], 20, update);
  const reach = slider(form, "window", "window, in σ", [1, 2, 4, 8, 16], 8, update);
  const longest = slider(form, "longest", "longest text n", [1024, 2048, 4096, 8192, 16384, 32768], 8192, update);
  const design = choice(form, "design", "design", names.designs, "stratified", update);
  button.addEventListener("click", update);

  async function overLengths(rows, stale) {
    const left = new Set(methods);
    for (let n = 256; n <= longest.get() && !stale(); n *= 2) {
      for (const m of [...left]) {
        if (stale()) return;
        told.textContent = `Measuring ${m.name} on ${n} positions.`;
        const [found] = await library.ask("attend", problem(n), [run(m.method, samples.get())]);
        rows.push({ name: m.name, n, samples: samples.get(), ...found });
        if (found.milliseconds > SLOWEST) left.delete(m);
      }
      await drawOver("attention-time", "Time against the length", "n", rows, "milliseconds", "ms");
      await drawOver("attention-error", "Error against the length", "n", rows, "error", "relative error of the output");
    }
  }
  async function overSamples(rows, stale) {
    const n = 2048, counts = [1, 2, 5, 10, 20, 50, 100, 200, 500];
    const [exact, window] = await library.ask("attend", problem(n), methods.slice(1, 3).map(m => run(m.method, 1)));
    for (const s of counts) {
      if (stale()) return;
      told.textContent = `Measuring ${s} partitions.`;
      const [found] = await library.ask("attend", problem(n), [run(methods[3].method, s)]);
      rows.push({ name: "plsh", n, samples: s, ...found }, { name: "exact", n, samples: s, ...exact }, { name: "window", n, samples: s, ...window });
      await drawOver("attention-time-s", `Time against s, n = ${n}`, "samples", rows, "milliseconds", "ms");
      await drawOver("attention-error-s", `Error against s, n = ${n}`, "samples", rows, "error", "relative error of the output");
    }
  }
  function drawOver(id, title, key, rows, value, unit) {
    return drawPlot(id, {
      title, x: key === "n" ? ["positions n", AXIS.twos] : ["partitions s", AXIS.tens], y: [unit, AXIS.tens],
      series: methods.map(({ name, colour }) => ({ style: STYLE.line, colour, name, marks: rows.filter(r => r.name === name).map(r => [r[key], r[value]]) })),
    });
  }
  function table(rows) {
    const body = rows.map(r => `<tr><td>${r.name}</td><td>${r.n}</td><td>${r.name === "plsh" ? r.samples : ""}</td><td>${r.milliseconds.toPrecision(3)}</td>` +
      `<td>${r.error.toExponential(1)}</td><td>${(r.pairs / r.n).toFixed(0)}</td></tr>`).join("");
    byId("attention-table").innerHTML = "<caption>Measured in this browser</caption><thead><tr><th scope=col>method</th><th scope=col>n</th><th scope=col>s</th>" +
      `<th scope=col>ms</th><th scope=col>error</th><th scope=col>pairs per position</th></tr></thead><tbody>${body}</tbody>`;
  }
  return update;
}

// ---- The plane ---------------------------------------------------------------------------------

const HALF = 10; // the picture shows -HALF .. HALF in both coordinates

function planePanel() {
  const form = byId("plane-controls"), canvas = byId("plane-picture"), pen = canvas.getContext("2d");
  const points = [[-4, 3], [-2.5, 2], [1, -1], [6, 5], [5, -6]];
  let chosen = 0, cross = null;
  const update = latest(async () => {
    const set = { scheme: 0, design: 0, sigma: sigma.get(), samples: samples.get(), seed: 1 }, sample = (shown.get() - 1) % set.samples;
    const found = await library.ask("cells", set, points.flat(), HALF * Math.SQRT2, sample);
    draw(found, sample);
    const weights = points.map((p, i) => weightOf(found.labels, i, set));
    table(weights);
    state.plane = { set, points: points.flat(), labels: [...found.labels], weights };
  });
  const sigma = slider(form, "sigma", "reach σ", [1, 2, 4, 8, 16, 32], 8, update);
  const samples = slider(form, "samples", "draws s", [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], 100, update);
  const shown = slider(form, "shown", "draw that is shown", Array.from({ length: 20 }, (_, i) => i + 1), 1, update);

  function weightOf(labels, i, set) {
    const n = points.length, d = Math.hypot(points[i][0] - points[chosen][0], points[i][1] - points[chosen][1]);
    let same = 0;
    for (let m = 0; m < set.samples; m++) same += labels[m * n + i] === labels[m * n + chosen];
    return { distance: d, mean: same / set.samples, decay: Math.exp(-d / set.sigma) };
  }
  const place = ([x, y]) => [(x / HALF + 1) / 2 * canvas.width, (1 - y / HALF) / 2 * canvas.height];

  function draw({ labels, lines }, sample) {
    const size = Math.round(canvas.clientWidth * devicePixelRatio) || 400, rgb = name => `rgb(${colour(name).join()})`;
    canvas.width = canvas.height = size;
    pen.strokeStyle = rgb("faint");
    pen.lineWidth = size / 500;
    for (let i = 0; i < lines.length; i += 3) { // normal.x = offset: a long piece of the line around its nearest point to 0
      const [u, v, p] = lines.subarray(i, i + 3), long = 2 * HALF;
      pen.beginPath();
      pen.moveTo(...place([u * p - v * long, v * p + u * long]));
      pen.lineTo(...place([u * p + v * long, v * p - u * long]));
      pen.stroke();
    }
    points.forEach((point, i) => {
      const label = labels[sample * points.length + i], [x, y] = place(point);
      pen.fillStyle = rgb(`c${label % 7}`);
      pen.beginPath();
      pen.arc(x, y, size / 55, 0, 7);
      pen.fill();
      pen.fillStyle = pen.strokeStyle = rgb("ink");
      pen.lineWidth = size / 160;
      if (i === chosen) pen.stroke();
      pen.font = `${size / 24}px system-ui`;
      pen.fillText(String(i + 1), x + size / 45, y - size / 60);
    });
    if (cross) {
      const [x, y] = place(cross), r = size / 30;
      pen.beginPath();
      pen.moveTo(x - r, y); pen.lineTo(x + r, y); pen.moveTo(x, y - r); pen.lineTo(x, y + r);
      pen.stroke();
    }
    canvas.setAttribute("aria-label", `${points.length} points and ${lines.length / 3} lines; point ${chosen + 1} is chosen`);
  }
  function table(weights) {
    byId("plane-table").innerHTML = `<caption>Weights of point ${chosen + 1}</caption><thead><tr><th scope=col>point</th><th scope=col>distance</th>` +
      "<th scope=col>share a cell</th><th scope=col>e<sup>−d/σ</sup></th></tr></thead><tbody>" +
      weights.map((w, i) => `<tr><td>${i + 1}</td><td>${w.distance.toFixed(2)}</td><td>${percent(w.mean)}</td><td>${percent(w.decay)}</td></tr>`).join("") + "</tbody>";
  }
  const say = text => { byId("plane-numbers").textContent = text; };

  // A click or Enter there: chooses the point under it, or adds one.
  function touch(at) {
    const near = points.findIndex(p => Math.hypot(p[0] - at[0], p[1] - at[1]) < 0.7);
    if (near < 0 && points.length >= 40) return say("40 points are the most.");
    if (near < 0) points.push(at);
    chosen = near < 0 ? points.length - 1 : near;
    say(near < 0 ? `Point ${chosen + 1} added at ${at.map(x => x.toFixed(1)).join(", ")}.` : `Point ${chosen + 1} chosen.`);
    update();
  }
  canvas.addEventListener("click", event => {
    const box = canvas.getBoundingClientRect();
    touch([((event.clientX - box.left) / box.width * 2 - 1) * HALF, (1 - (event.clientY - box.top) / box.height * 2) * HALF]);
  });
  canvas.addEventListener("keydown", event => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (move) {
      cross = (cross ?? [0, 0]).map((x, c) => Math.max(-HALF, Math.min(HALF, x + move[c] / 2)));
      say(`Cross at ${cross.join(", ")}.`);
      update();
    } else if (event.key === "Enter" || event.key === " ") touch(cross ?? [0, 0]);
    else if (event.key === "Delete" && points.length > 1) {
      points.pop();
      chosen = Math.min(chosen, points.length - 1);
      say(`${points.length} points are left.`);
      update();
    } else return;
    event.preventDefault();
  });
  return update;
}

// ---- Begin -------------------------------------------------------------------------------------

const panels = [];

// For the tests: waits until nothing is computed.
async function settled() { for (const panel of panels) await panel.settled(); }

async function begin() {
  const names = await library.begin();
  state.names = names;
  panels.push(masksPanel(names));
  await panels[0]();
  panels.push(planePanel(), attentionPanel(names));
  if (byId("model")) panels.push(modelPanel(names));
  byId("status").textContent = "";
  byId("facts").textContent = `plsh ${names.version}, WebAssembly (${names.isas[0]} kernels). First picture after ${Math.round(state.firstPicture)} ms.`;
  panels[1]();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { panels[0](); panels[1](); });
  // Attention is measured when it is first looked at.
  const watch = new IntersectionObserver(seen => {
    if (seen.some(entry => entry.isIntersecting)) { watch.disconnect(); panels[2](); }
  });
  watch.observe(byId("attention-run"));
}

globalThis.plsh = { state, settled, library, ready: begin().catch(error => { byId("status").textContent = `The library did not start: ${error.message}`; throw error; }) };
