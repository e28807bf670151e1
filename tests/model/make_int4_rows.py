#!/usr/bin/env python3
"""Writes tests/fixtures/int4/non_uniform.safetensors: a row quantised to the non-uniform values of four bits.

Made from the text of docs/adr/0037-non-uniform-values-of-four-bits.md alone, without the build. Numbers of 32 bits are rounded
as IEEE 754 asks after each operation; sums are in double precision, and the row is one where nothing is decided by less than
rounding could move: neither a code, nor which scale is the best, nor the last bit of a float16. Other steps of the search
(a factor 0.01 larger or smaller, or missing, or a table that begins with -16) would give another row, which is checked too. Needs
the standard library of Python only; run it from the repository root: `python3 tests/model/make_int4_rows.py`. The build, the
tests and CI only read what it wrote.

values [n]. For each group size G: codes/G [n], scales/G [groups], row_scale/G [1]: a weight is the value of its code times
scale times row scale.
"""

import json
import math
import pathlib
import random
import struct

OUT = pathlib.Path("tests/fixtures/int4/non_uniform.safetensors")
TABLE = (-17, -13, -10, -8, -6, -4, -2, -1, 0, 1, 3, 5, 7, 9, 12, 15)
FACTORS = (1.05, 0.92, 0.8)
GROUPS = (32, 64, 128)
N_VALUES = 300  # the last group of every size is not full
CODE_CLOSE = 17 * 2 ** -22  # a number of up to 17, rounded to 32 bits up to four times
SUM_CLOSE = 2e-5  # beside 1: two sums of 128 products of 32 bits, each off by less than 128 * 2^-24


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def f16(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


class TooClose(Exception):
    """Rounding could decide."""


def nearest(x, table, strict):
    """The code of the value nearest to x."""
    if strict and any(abs(x - (low + high) / 2) < CODE_CLOSE for low, high in zip(table, table[1:])):
        raise TooClose
    return min(range(len(table)), key=lambda code: abs(table[code] - x))


def power_for(largest):
    """The power of two that makes of the largest magnitude a number from 2^13 to 2^14."""
    return math.ldexp(1, math.frexp(largest)[1] - 1 - 13)


def best_scale(values, factors, table, strict):
    extreme = max(values, key=abs)
    found = []  # squares taken away, scale, codes
    for factor in factors:
        inverse = f32(table[0] / f32(extreme * f32(factor)))
        codes = [nearest(f32(x * inverse), table, strict) for x in values]
        products = sum(x * table[code] for x, code in zip(values, codes))
        squares = sum(table[code] ** 2 for code in codes)
        found.append((products ** 2 / squares, products / squares, codes))
    most = max(found, key=lambda one: one[0])
    for other in found:
        if strict and other[2] != most[2] and most[0] - other[0] < SUM_CLOSE * most[0]:
            raise TooClose
    scale = most[1]
    if strict and len({f16(scale * (1 + slip)) for slip in (-SUM_CLOSE, 0, SUM_CLOSE)}) > 1:
        raise TooClose
    return f16(scale)


def quantised(row, group, factors=FACTORS, table=TABLE, strict=False):
    """Codes, scales of float16, and the row's scale. strict: raises TooClose."""
    unit = power_for(max(map(abs, row)))
    codes, scales = [], []
    for begin in range(0, len(row), group):
        values = [x / unit for x in row[begin:begin + group]]
        scale = best_scale(values, factors, table, strict)
        codes += [nearest(f32(x * f32(1 / scale)), table, strict) for x in values]
        scales.append(scale * unit)
    row_scale = power_for(8 * max(map(abs, scales)))
    return codes, [scale / row_scale for scale in scales], row_scale


def row_of(seed):
    """Of groups whose scales differ."""
    noise = random.Random(seed)
    return [f32(noise.gauss(0, 0.02 * (1 + i // 100))) for i in range(N_VALUES)]


def differs(row, other):
    """Whether another search finds something else, in groups of some size."""
    return any(quantised(row, group, **other) != quantised(row, group) for group in GROUPS)


def shows_every_step(row):
    """Whether every other search differs."""
    others = [dict(factors=tuple(f + 0.01 * (i == j) for j, f in enumerate(FACTORS))) for i in range(len(FACTORS))]
    others += [dict(factors=tuple(f - 0.01 * (i == j) for j, f in enumerate(FACTORS))) for i in range(len(FACTORS))]
    others += [dict(factors=FACTORS[:i] + FACTORS[i + 1:]) for i in range(len(FACTORS))]
    others += [dict(table=(-16,) + TABLE[1:])]
    return all(differs(row, other) for other in others)


def find_row():
    for seed in range(10000):
        try:
            row = row_of(seed)
            for group in GROUPS:
                quantised(row, group, strict=True)
            if shows_every_step(row):
                return row
        except TooClose:
            pass
    raise SystemExit("no seed gives a row in which rounding decides nothing")


def main():
    row = find_row()
    tensors = {"values": ("F32", "f", row)}
    for group in GROUPS:
        codes, scales, row_scale = quantised(row, group)
        tensors[f"codes/{group}"] = ("U8", "B", codes)
        tensors[f"scales/{group}"] = ("F16", "e", scales)
        tensors[f"row_scale/{group}"] = ("F32", "f", [row_scale])
    header, data = {}, b""
    # Larger elements first, so that each tensor is aligned to its own.
    for name, (kind, letter, numbers) in sorted(tensors.items(), key=lambda each: -struct.calcsize(each[1][1])):
        begin = len(data)
        data += struct.pack(f"<{len(numbers)}{letter}", *numbers)
        header[name] = {"dtype": kind, "shape": [len(numbers)], "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_bytes(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    main()
