"""A small Qwen3 trained from scratch on WikiText-2 with one attention: what table-scratch and table-protocol have in common."""
import json
import random
import shutil

from training import SHARED, WIKITEXT, steps

CONFIG = {
    "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 128, "intermediate_size": 256,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 32, "vocab_size": 4096,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": True, "hidden_act": "silu",
    "attention_bias": False, "initializer_range": 0.02,
}


class Scratch:
    """Runs of an experiment; a run is (name, seed, order of the text, options of attention)."""

    def __init__(self, experiment):
        self.experiment, self.work = experiment, experiment.work
        self.context = 64 if experiment.tiny else 1024
        self.one_sigma = self.context // 32  # as the paper's code has 256 at 8k

    def prepare(self):
        """The configuration, and the test split in the order of the text and shuffled by rows, as the training text is."""
        (self.work / "config.json").write_text(json.dumps({**CONFIG, "max_position_embeddings": self.context}))
        text = (WIKITEXT / "wiki.test.tokens").read_text(encoding="utf-8")[:3000 if self.experiment.tiny else None]
        rows = [row for row in text.splitlines(keepends=True) if row.strip()]
        random.Random(42).shuffle(rows)
        (self.work / "test-text.txt").write_text(text, encoding="utf-8")
        (self.work / "test-rows.txt").write_text(" ".join(rows), encoding="utf-8")

    def test_text(self, order):
        return self.work / f"test-{order}.txt"

    def train(self, run):
        """One pass over the text. Returns the folder of the model and the log of its steps."""
        name, seed, order, attention = run
        out = self.work / f"{name}-{seed}"
        text = WIKITEXT / ("wiki.valid.tokens" if self.experiment.tiny else "wiki.train.tokens")
        log = self.experiment.train(
            out, "--fresh", self.work / "config.json", "--tokenizer", SHARED / "data/tokenizers/wikitext-bpe-4k/tokenizer.json",
            "--text", text, "--order", order, "--tokens", self.work / f"train-{order}.tokens", "--context", self.context,
            *(["--steps", 2] if self.experiment.tiny else ["--epochs", 1]), "--lr", "1e-3", "--schedule", "linear", "--warmup", "0.1",
            "--weight-decay", "0.01", "--clip", "1", "--checkpoint-every", "100", "--seed", seed, *attention)
        return out, log

    def run(self, configurations, cells):
        """Trains what has no row yet, one seed of everything first; cells(model, run) are the scores of a row."""
        self.prepare()
        done = {(row["name"], row["seed"]) for row in self.experiment.read()}
        todo = [(name, seed, order, attention) for name, seeds, order, attention in configurations
                for seed in range(1, 2 if self.experiment.tiny else seeds + 1)
                if (name, str(seed)) not in done and self.experiment.is_asked_for(name)]
        todo.sort(key=lambda run: run[1])

        def finish(run):
            name, seed, order, attention = run
            out, log = self.train(run)
            self.experiment.add({"name": name, "seed": seed, "order": order, **cells(out, run), **steps(log), "attention": " ".join(attention)})
            shutil.rmtree(out)

        self.experiment.run(todo, lambda run: f"{run[0]} seed {run[1]}: {' '.join(run[3])}", finish)
