"""Changes a float32 tensor of a model's folder: its first number becomes VALUE; where there is no
such tensor, one of this shape is added, filled with it.
Usage: edit_model.py FOLDER NAME VALUE [ROWS COLUMNS]"""
import json
import struct
import sys
from pathlib import Path


def edit(path: Path, name: str, value: float, shape: list[int]) -> None:
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, numbers = json.loads(data[8:8 + size]), bytearray(data[8 + size:])
    if name in header:
        struct.pack_into("<f", numbers, header[name]["data_offsets"][0], value)
    else:
        count = shape[0] * shape[1]
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(numbers), len(numbers) + 4 * count]}
        numbers += struct.pack(f"<{count}f", *[value] * count)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + numbers)


if __name__ == "__main__":
    edit(Path(sys.argv[1]) / "model.safetensors", sys.argv[2], float(sys.argv[3]),
         [int(x) for x in sys.argv[4:6]])
