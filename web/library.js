// The worker: holds the module and answers the page, one message after the other.
"use strict";

const NAMES = { schemes: 0, designs: 1, methods: 2, isas: 3 };

class Library {
  static async create(code) {
    const self = new Library();
    self.wasi = new Wasi();
    const { instance } = await WebAssembly.instantiate(code, { wasi_snapshot_preview1: self.wasi.imports });
    self.exports = instance.exports;
    self.wasi.memory = self.exports.memory;
    self.exports._initialize();
    return self;
  }

  get bytes() { return this.exports.memory.buffer.byteLength; }
  string(at) {
    if (at === 0) return null;
    const memory = new Uint8Array(this.exports.memory.buffer);
    return new TextDecoder().decode(memory.slice(at, memory.indexOf(0, at)));
  }

  // Runs `use` with memory of these sizes in bytes, which is released afterwards.
  within(sizes, use) {
    const parts = sizes.map(size => this.exports.malloc(size));
    try {
      if (parts.includes(0)) throw new Error("out of memory");
      return use(...parts);
    } finally {
      for (const part of parts) this.exports.free(part);
    }
  }
  withText(texts, use) {
    const encoded = texts.map(text => new TextEncoder().encode(text + "\0"));
    return this.within(encoded.map(e => e.length), (...at) => {
      encoded.forEach((e, i) => new Uint8Array(this.exports.memory.buffer).set(e, at[i]));
      return use(...at);
    });
  }
  check(done) { if (!done) throw new Error(this.string(this.exports.web_error())); }
  doubles(count, call) {
    return this.within([8 * count], at => {
      this.check(call(at));
      return [...new Float64Array(this.exports.memory.buffer, at, count)];
    });
  }
  floats(count, call) {
    return this.within([4 * count], at => {
      this.check(call(at));
      return new Float32Array(this.exports.memory.buffer, at, count).slice();
    });
  }
  labels(count, call) {
    return this.within([4 * count], at => {
      this.check(call(at));
      return new Int32Array(this.exports.memory.buffer, at, count).slice();
    });
  }

  // ---- What the page can ask for ---------------------------------------------------------------

  names() {
    const all = { version: this.string(this.exports.web_version()) };
    for (const [list, number] of Object.entries(NAMES)) {
      all[list] = [];
      for (let i = 0, at; (at = this.exports.web_name(number, i)) !== 0; i++) all[list].push(this.string(at));
    }
    return all;
  }
  choose({ scheme, design, sigma, samples, seed }) { this.check(this.exports.web_set_choose(scheme, design, sigma, samples, seed)); }

  // The matrices of n positions and their norms and bounds.
  masks(set, n, singles) {
    this.choose(set);
    const e = this.exports, shown = e.web_set_has_labels() ? Math.min(singles, set.samples) : 0;
    return {
      labels: Array.from({ length: shown }, (_, i) => this.labels(n, at => e.web_set_labels(i, n, at))),
      mean: this.floats(n * n, at => e.web_set_mean(n, at)),
      decay: this.floats(n * n, at => (e.web_set_decay(n, at), true)),
    };
  }
  norms(set, n, delta) {
    this.choose(set);
    const [spectral, max, largest] = this.doubles(3, at => this.exports.web_set_norms(n, at));
    const [spectralBound, maxBound, certain] = this.doubles(3, at => this.exports.web_set_bounds(n, delta, at));
    return { samples: set.samples, spectral, max, largest, spectralBound, maxBound, certain: certain === 1 };
  }
  cells(set, points, radius, shown) {
    this.choose(set);
    const n = points.length / 2, e = this.exports, most = 512;
    const labels = n === 0 ? new Int32Array(0) : this.within([8 * n], from => {
      new Float32Array(e.memory.buffer, from, 2 * n).set(points);
      return this.labels(n * set.samples, at => e.web_cells_label(n, from, at));
    });
    const lines = this.within([24 * most], at => {
      const count = e.web_cells_lines(shown, radius, at, most);
      return new Float64Array(e.memory.buffer, at, 3 * count).slice();
    });
    return { labels, lines };
  }
  attend({ n, dim, sigma, causal, seed }, runs) {
    this.check(this.exports.web_attention_begin(n, dim, sigma, causal, seed));
    try {
      return runs.map(({ method, design, samples, window, isa, repeats }) => {
        const times = [];
        let row;
        for (let i = 0; i < (repeats ?? 1); i++) {
          row = this.doubles(4, at => this.exports.web_attention_run(method, design ?? 0, samples ?? 1, window ?? 1, isa ?? 0, at));
          times.push(row[0]);
        }
        return { milliseconds: Math.min(...times), error: row[1], largest: row[2], pairs: row[3] };
      });
    } finally {
      this.exports.web_attention_end();
    }
  }
  // { title, x: [title, scale], y: .., series: [{ style, colour, name, marks: [[x, y, low, high]] }] } as HTML.
  plot(plot) {
    const e = this.exports;
    this.withText([plot.title, plot.x[0], plot.y[0]], (title, x, y) => e.web_plot_begin(title, x, plot.x[1], y, plot.y[1]));
    for (const series of plot.series) {
      this.withText([series.name], name => e.web_plot_series(series.style, series.colour, name));
      for (const [x, y, low, high] of series.marks) e.web_plot_mark(x, y, low ?? NaN, high ?? NaN);
    }
    return this.string(e.web_plot_end()) ?? "";
  }
  memory() { return this.bytes; }

  // ---- A language model ------------------------------------------------------------------------

  // [[name, bytes], ..]: a GGUF file, or the files of a folder.
  open(files) {
    const e = this.exports, gguf = files.find(([name]) => name.endsWith(".gguf"));
    e.web_model_close();
    this.wasi.files = new Map(files.map(([name, bytes]) => [`model/${name}`, bytes]));
    this.withText([gguf ? `/model/${gguf[0]}` : "/model"], path => this.check(e.web_model_open(path)));
    this.wasi.files.clear(); // the module has its own copy
    const [layers, heads, parameters, bytes, alibi] = this.doubles(5, at => (e.web_model_facts(at), true));
    return { family: this.string(e.web_model_family()), layers, heads, parameters, bytes, alibi: alibi === 1 };
  }
  // Begins a text; returns the tokens of the prompt.
  generate(prompt, method, samples) {
    const count = this.withText([prompt], at => this.exports.web_generate_begin(at, method, samples));
    this.check(count >= 0);
    return count;
  }
  next() {
    const id = this.exports.web_generate_next();
    this.check(id !== -1);
    return id === -2 ? { ended: true } : { id, text: this.string(this.exports.web_generate_text()), bytes: this.exports.web_generate_bytes() };
  }
}

if (typeof WorkerGlobalScope !== "undefined") {
  let library;
  onmessage = async ({ data: { id, call, args } }) => {
    try {
      if (call === "create") library = await Library.create(args[0]);
      postMessage({ id, result: call === "create" ? library.names() : await library[call](...args) });
    } catch (error) {
      postMessage({ id, error: error.message });
    }
  };
}
