// ---- A language model --------------------------------------------------------------------------

function modelPanel(names) {
  const form = byId("model-controls"), told = byId("model-facts"), methods = ["its own", "exact", "window", "plsh", "none"];
  let stopped = false, running = Promise.resolve();
  const runs = [];
  const attention = choice(form, "attention", "attention", methods, "its own", () => {});
  const samples = slider(form, "samples", "partitions s, for plsh", [1, 2, 5, 10, 20, 50, 100, 200, 500], 20, () => {});
  const tokens = slider(form, "tokens", "tokens", [8, 16, 32, 64, 128, 256, 512], 64, () => {});

  async function open(list) {
    const files = [];
    for (const file of list) files.push([file.name, new Uint8Array(await file.arrayBuffer())]);
    if (files.length === 0) return;
    told.textContent = "Reading.";
    try {
      const facts = await library.ask("open", files);
      told.textContent = `${facts.family}: ${facts.layers} layers, ${facts.heads} heads, ${(facts.parameters / 1e6).toPrecision(3)} million parameters, ` +
        `${(facts.bytes / 1e6).toPrecision(3)} MB${facts.alibi ? ", trained with ALiBi" : ""}.`;
      byId("model-panel").hidden = false;
      state.model = { facts, runs };
    } catch (error) {
      byId("model-panel").hidden = true;
      told.textContent = `This is no model that the library reads: ${error.message}`;
    }
  }
  async function generate() {
    const name = methods[attention.get()], text = byId("model-text"), begin = performance.now(), prompt = byId("model-prompt").value;
    byId("model-run").disabled = true;
    byId("model-stop").disabled = stopped = false;
    text.textContent = prompt;
    try {
      const count = await library.ask("generate", prompt, names.methods.indexOf(name), samples.get());
      const ids = [];
      let bytes = 0, first = 0;
      while (ids.length < tokens.get() && !stopped) {
        const next = await library.ask("next");
        if (next.ended) break;
        first ||= performance.now();
        ids.push(next.id);
        bytes = next.bytes;
        text.textContent += next.text;
      }
      const speed = ids.length > 1 ? (ids.length - 1) / (performance.now() - first) * 1e3 : NaN;
      runs.push({ name, samples: name === "plsh" ? samples.get() : "", count, ids, speed, bytes, prompt, seconds: (performance.now() - begin) / 1e3 });
      table();
    } catch (error) {
      text.textContent = `Failed: ${error.message}`;
    }
    byId("model-run").disabled = false;
    byId("model-stop").disabled = true;
  }
  function table() {
    byId("model-table").innerHTML = "<caption>Runs; the memory is that of keys and values</caption><thead><tr><th scope=col>attention</th><th scope=col>s</th>" +
      "<th scope=col>tokens</th><th scope=col>tokens/s</th><th scope=col>kB</th></tr></thead><tbody>" + runs.slice(-12).map(r =>
        `<tr><td>${r.name}</td><td>${r.samples}</td><td>${r.ids.length}</td><td>${r.speed.toFixed(0)}</td><td>${(r.bytes / 1e3).toFixed(0)}</td></tr>`).join("") + "</tbody>";
  }
  const drop = byId("model-drop"), start = work => { running = running.then(work); };
  byId("model-files").addEventListener("change", event => start(() => open(event.target.files)));
  for (const kind of ["dragover", "dragleave", "drop"])
    drop.addEventListener(kind, event => {
      event.preventDefault();
      drop.classList.toggle("over", kind === "dragover");
      if (kind === "drop") start(() => open(event.dataTransfer.files));
    });
  byId("model-run").addEventListener("click", () => start(generate));
  byId("model-stop").addEventListener("click", () => { stopped = true; });
  return { settled: async () => { let seen; do { seen = running; await seen; } while (seen !== running); } };
}
