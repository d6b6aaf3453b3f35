"""The curve from the model itself (plsh error --model) beside the one from the kept arrays: model.tsv has both errors of
every layer, position, sigma, s, seed and head, and prints how far they are apart.
usage: from_model.py PLSH FOLDER"""
import subprocess
import sys
import tempfile
from pathlib import Path

plsh, shared = sys.argv[1], Path(sys.argv[2])
OPTIONS = ["--sigma", "8,64,256", "--samples", "1,10,100", "--reps", "3", "--design", "iid", "--quiet"]
MODEL = ["--model", str(shared / "data/models/smollm2-135m-q4_1/SmolLM2-135M-Instruct.Q4_1.gguf"),
         "--text", str(shared / "data/wikitext-raw/wiki.test.raw"), "--limit-tokens", "4096", "--layers", "0,15"]


def errors(arguments):
    """What plsh error --out writes: {(sigma, samples, rep, head): error}, a layer before them if there is one."""
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([plsh, "error", *arguments, *OPTIONS, "--out", out.name], check=True, stdout=subprocess.DEVNULL)
        lines = [line.split("\t") for line in Path(out.name).read_text().splitlines()[1:]]
    return {tuple(map(int, line[:-1])): float(line[-1]) for line in lines}


def main():
    with open(Path(__file__).parent / "model.tsv", "w") as table:
        table.write("layer\tposition\tsigma\tsamples\trep\thead\tfrom_model\tfrom_arrays\n")
        for position, ending in (("raw", ""), ("rope", "_rope")):
            model = errors([*MODEL, "--position", position])
            for layer in (0, 15):
                folder = shared / f"data/qkv/smollm2-layer{layer:02}"
                arrays = errors(["--q", str(folder / f"q{ending}.npy"), "--k", str(folder / f"k{ending}.npy"),
                                 "--v", str(folder / "v.npy")])
                apart = [abs(model[(layer, *key)] / error - 1) for key, error in arrays.items()]
                print(f"layer {layer}, {position}: {len(apart)} errors, the largest relative difference {max(apart):.2g}")
                for key, error in arrays.items():
                    table.write(f"{layer}\t{position}\t" + "\t".join(map(str, key)) + f"\t{model[(layer, *key)]}\t{error}\n")


main()
