"""Payloads of snapshots read by a decoder of its own, written from docs/weight-sync.md: what the page says is what the program writes."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"BF16": (2, 7, 8), "F16": (2, 10, 5), "F32": (4, 23, 8), "F8_E4M3": (1, 3, 4), "F8_E5M2": (1, 2, 5)}  # bytes, exponent's first bit, its bits
WIDTHS = {"U8": 1, "I8": 1, "BOOL": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "I32": 4, "U32": 4}


class Bits:
    def __init__(self, data):
        self.value, self.left = int.from_bytes(data, "little"), 8 * len(data)

    def take(self, count):
        assert count <= self.left
        taken = self.value & ((1 << count) - 1)
        self.value >>= count
        self.left -= count
        return taken

    def finish(self):
        assert self.value == 0 and self.left < 8


class Mean:
    def __init__(self, begin):
        self.sum, self.count = begin, 1

    def read(self, quotients, remainders):
        k = 0
        while (2 * self.count << k) < self.sum:
            k += 1
        q = 0
        while q < 24 and quotients.take(1):
            q += 1
        value = q << k | remainders.take(k) if q < 24 else remainders.take(remainders.take(6))
        self.sum += min(value, 1 << 40)
        self.count += 1
        if self.count == 64:
            self.sum, self.count = (self.sum + 1) // 2, 32
        return value


def varint(data):
    value = shift = 0
    while True:
        byte, data = data[0], data[1:]
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, data


class Words:
    def __init__(self, dtype, old):
        self.width = KINDS[dtype][0] if dtype in KINDS else WIDTHS[dtype]
        self.kind = KINDS.get(dtype)
        self.old = [int.from_bytes(old[i : i + self.width], "little") for i in range(0, len(old), self.width)]
        self.all = (1 << 8 * self.width) - 1

    def exponent(self, word):
        return word >> self.kind[1] & ((1 << self.kind[2]) - 1) if self.kind else 0

    def moved(self, word, step):
        high = 1 << 8 * self.width - 1
        if not self.kind:
            return word + step & self.all
        place = (~word & self.all if word & high else word + high) + step & self.all
        return place - high if place & high else ~place & self.all

    def bytes(self, words):
        return b"".join(w.to_bytes(self.width, "little") for w in words)


def sparse(words, payload):
    low, count, data = payload[0], payload[1], payload[2:]
    sizes = []
    for _ in range(count):
        changes, data = varint(data)
        first = second = 0
        if changes:
            first, data = varint(data)
            second, data = varint(data)
        sizes.append((changes, first, second))
    new = list(words.old)
    for c, (changes, first, second) in enumerate(sizes):
        positions, steps, data = Bits(data[:first]), Bits(data[first : first + second]), data[first + second :]
        members = [i for i, w in enumerate(words.old) if min(max(words.exponent(w) - low, 0), count - 1) == c]
        gaps, runs, magnitudes = Mean(64), Mean(64), Mean(1)
        at, ones = -1, None
        for _ in range(changes):
            at += 1 + gaps.read(positions, positions)
            sign = -1 if positions.take(1) else 1
            if ones is None:
                ones = runs.read(steps, steps)
            if ones:
                ones, magnitude = ones - 1, 1
            else:
                ones, magnitude = None, magnitudes.read(steps, steps) + 2
            new[members[at]] = words.moved(words.old[members[at]], sign * magnitude)
        positions.finish()
        steps.finish()
    assert not data
    return words.bytes(new)


def planes(words, payload):
    size, data = varint(payload)
    quotients, remainders = Bits(data[:size]), Bits(data[size:])
    means = {}
    new = []
    for word in words.old:
        number = means.setdefault(words.exponent(word), Mean(0)).read(quotients, remainders)
        new.append(words.moved(word, -(number + 1 >> 1) if number & 1 else number >> 1))
    quotients.finish()
    remainders.finish()
    return words.bytes(new)


def changes(words, payload):
    count, data = varint(payload)
    length, data = varint(data)
    gaps, new = data[:length], data[length:]
    assert len(new) == count * words.width
    found, at = list(words.old), -1
    for i in range(count):
        gap, gaps = varint(gaps)
        at += 1 + gap
        found[at] = int.from_bytes(new[i * words.width : (i + 1) * words.width], "little")
    assert not gaps
    return words.bytes(found)


ROWS = json.loads((ROOT / "tests/golden/sync/payloads.json").read_text())


@pytest.mark.parametrize("row", ROWS, ids=[f"{r['dtype']}-{r['codec']}-{i}" for i, r in enumerate(ROWS)])
def test_payload_is_as_the_page_says(row):
    old, new, payload = (bytes.fromhex(row[k]) for k in ("old", "new", "payload"))
    if row["codec"] == "full":
        assert payload == b""
        return
    decode = {"sparse": sparse, "planes": planes, "changes": changes}[row["codec"]]
    assert decode(Words(row["dtype"], old), payload) == new


def test_a_flipped_bit_is_another_tensor():
    row = next(r for r in ROWS if r["codec"] == "planes")
    payload = bytearray.fromhex(row["payload"])
    payload[len(payload) // 2] ^= 1
    try:
        read = planes(Words(row["dtype"], bytes.fromhex(row["old"])), bytes(payload))
    except AssertionError:
        return  # it does not even end where it should
    assert read != bytes.fromhex(row["new"])


def test_every_codec_is_there():
    assert {r["codec"] for r in ROWS} >= {"sparse", "planes", "changes"}
