"""A target and a draft of random weights whose guesses are right as often as wanted, the same for every peer that loads them.

usage: forced.py TARGET DRAFT SHARE

Both are folders of `foretoken model init-random` of one vocabulary, and are changed in place. After it the next token depends on the last
one alone, by a permutation of the vocabulary; the draft's permutation is the target's for SHARE of the tokens, and another for the rest. To
that end the row of the head for the next token is the embedding of the last one, and embeddings are so large that what the layers add does
not change which row is the likeliest. The layers compute what they would have computed, at the price that they would have had.
"""

import json
import pathlib
import sys

import numpy

SEED = 7
LARGE = 16  # root mean square of an embedding; what the random layers add to it stays below a few units


def table(folder, name):
    """A tensor of the folder's safetensors files, bfloat16 as whole numbers of 16 bits; writing to it writes to the file."""
    for path in sorted(folder.glob("*.safetensors")):
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            about = json.loads(file.read(length)).get(name)
        if about:
            if about["dtype"] != "BF16":
                raise SystemExit(f"error: {path}: {name} is {about['dtype']}, and BF16 is wanted")
            begin, end = about["data_offsets"]
            data = numpy.memmap(path, mode="r+", offset=8 + length)
            return data[begin:end].view("<u2").reshape(about["shape"])
    raise SystemExit(f"error: {folder}: no tensor {name}; a head of its own is needed")


def force(folder, following):
    """Makes following[t] the next token after t."""
    embeddings, head = table(folder, "model.embed_tokens.weight"), table(folder, "lm_head.weight")
    head[following] = embeddings[:]
    values = (embeddings.astype("<u4") << 16).view("<f4")
    values *= numpy.float32(2.0) ** numpy.round(numpy.log2(LARGE / numpy.sqrt(numpy.mean(values * values))))  # exact in bfloat16
    embeddings[:] = (values.view("<u4") >> 16).astype("<u2")


def main():
    target, draft, share = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3])
    draw = numpy.random.default_rng(SEED)
    n_tokens = len(table(target, "model.embed_tokens.weight"))
    following = draw.permutation(n_tokens)
    force(target, following)
    wrong = draw.permutation(n_tokens)[:round((1 - share) * n_tokens)]
    following[wrong] = following[numpy.roll(wrong, 1)]
    force(draft, following)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main()
