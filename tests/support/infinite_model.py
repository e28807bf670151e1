"""A model whose logits are not finite."""
import json
import pathlib
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[2]


def write_infinite_model(folder):
    """Copies the demo draft there, with the largest number of bfloat16 in its last norm."""
    shutil.copytree(ROOT / "models/demo-draft", folder)
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    n = int.from_bytes(data[:8], "little")
    norm = json.loads(data[8:8 + n])["model.norm.weight"]
    assert norm["dtype"] == "BF16", norm
    begin, end = (8 + n + at for at in norm["data_offsets"])
    data[begin:end] = b"\x7f\x7f" * ((end - begin) // 2)
    path.write_bytes(data)
