#!/usr/bin/env python3
"""Makes gguf_types.gguf: a row of 256 values of every q type, of random bits, and the same as float32, as
gguf-py dequantises it.

    python3 tests/formats/make_gguf_types.py tests/formats/gguf_types.gguf        (needs gguf)
"""
import sys

import gguf
import numpy as np

VALUES = 256
# Where the float16 scales of a block are.
HALVES = {"Q8_0": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,),
          "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,)}


def main() -> None:
    random = np.random.default_rng(25)
    writer = gguf.GGUFWriter(sys.argv[1], "llama")
    for name, places in HALVES.items():
        kind = gguf.GGMLQuantizationType[name]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        data = random.integers(0, 256, (VALUES // block, size), dtype=np.uint8)
        for place in places:
            halves = random.normal(size=len(data)).astype(np.float16)
            data[:, place:place + 2] = halves.view(np.uint8).reshape(-1, 2)
        data = data.reshape(1, -1)
        values = gguf.quants.dequantize(data, kind).reshape(1, VALUES).astype(np.float32)
        writer.add_tensor(f"{name.lower()}.bits", data, raw_dtype=kind)
        writer.add_tensor(f"{name.lower()}.values", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
