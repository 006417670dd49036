#!/usr/bin/env python3
"""Makes docs/page.png, the live page as README shows it, from a real run of the demo: `lockstep demo`, then this.

    tools/screenshot_page.py [--runs runs] [--run demo] [--out docs/page.png]
    tools/screenshot_page.py --url http://127.0.0.1:8088       of a page that a running command serves

It needs chromium, chromedriver and selenium (tools/browser-packages.txt, tools/oracle-requirements.txt). The picture shows real files on disk:
nothing in it is drawn by hand.
"""
import argparse
import struct
import sys
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/page"))
from conftest import Browser, Program  # noqa: E402

MOST_BYTES = 200_000


def fewer_colours(png):
    """The same picture with 4 bits less per channel where that is not visible: a third of the bytes. Standard library alone."""
    at, data, header = 8, b"", None
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + length]
        if kind == b"IHDR":
            header = body
        elif kind == b"IDAT":
            data += body
        at += length + 12
    width, height, depth, colour = struct.unpack(">IIBB", header[:10])
    channels = {2: 3, 6: 4}[colour]
    assert depth == 8
    raw, rows, before = zlib.decompress(data), [], bytearray(width * channels)
    for y in range(height):
        kind, line = raw[y * (width * channels + 1)], bytearray(raw[y * (width * channels + 1) + 1:(y + 1) * (width * channels + 1)])
        for x in range(len(line)):
            left = line[x - channels] if x >= channels else 0
            up, corner = before[x], before[x - channels] if x >= channels else 0
            if kind == 1:
                line[x] = (line[x] + left) & 255
            elif kind == 2:
                line[x] = (line[x] + up) & 255
            elif kind == 3:
                line[x] = (line[x] + (left + up) // 2) & 255
            elif kind == 4:
                p = left + up - corner
                a, b, c = abs(p - left), abs(p - up), abs(p - corner)
                line[x] = (line[x] + (left if a <= b and a <= c else up if b <= c else corner)) & 255
        before = line
        rows.append(bytes(line))
    counts = {}
    pixels = [[row[i:i + 3] for i in range(0, len(row), channels)] for row in rows]
    for row in pixels:
        for pixel in row:
            counts[pixel] = counts.get(pixel, 0) + 1
    palette = sorted(counts, key=counts.get, reverse=True)[:256]
    nearest = {colour: i for i, colour in enumerate(palette)}
    for colour in counts:
        if colour not in nearest:
            nearest[colour] = min(range(len(palette)), key=lambda i: sum((a - b) ** 2 for a, b in zip(palette[i], colour)))
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    body = b"".join(b"\0" + bytes(nearest[p] for p in row) for row in pixels)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)) + chunk(b"PLTE", b"".join(palette))
            + chunk(b"IDAT", zlib.compress(body, 9)) + chunk(b"IEND", b""))


def main():
    parser = argparse.ArgumentParser(description="Makes docs/page.png from a run.")
    parser.add_argument("--runs", default="runs")
    parser.add_argument("--run", default="demo")
    parser.add_argument("--url")
    parser.add_argument("--view", default="runs")
    parser.add_argument("--scheme", default="light", choices=["light", "dark"])
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=800)
    parser.add_argument("--out", default=str(ROOT / "docs/page.png"))
    options = parser.parse_args()
    program = None if options.url else Program("watch", options.runs, "--port", "0")
    browser = Browser()
    try:
        browser.size(options.width, options.height)
        browser.scheme(options.scheme)
        browser.open(f"{options.url or program.url}/#/{options.view}/{options.run}")
        browser.wait("document.querySelectorAll('.curve, .entry, .counters').length > 0", "the view")
        browser.wait("document.fonts.ready.then(() => true) && performance.now() > 2000", "the drawing")
        Path(options.out).write_bytes(fewer_colours(browser.driver.get_screenshot_as_png()))
    finally:
        browser.close()
        if program:
            program.stop()
    size = Path(options.out).stat().st_size
    print(f"{options.out}: {size} bytes")
    return size >= MOST_BYTES


if __name__ == "__main__":
    sys.exit(main())
