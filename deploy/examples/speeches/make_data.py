#!/usr/bin/env python3
"""Makes samples of different length of a text: one for each paragraph.

  make_data.py TEXT OUT_DIR [--longest 256]

Writes OUT_DIR/train.csv and, of the last tenth of the text, OUT_DIR/test.csv.
A line is a paragraph, "tokens,next": the bytes that are read, and what follows
each of them, as lists of numbers. Both begin with a newline as the start, or end
with one. Paragraphs of more than `longest` bytes are left out.
"""

import argparse
import pathlib


def write(path, paragraphs):
    with open(path, "w") as file:
        for paragraph in paragraphs:
            text = b"\n" + paragraph + b"\n"
            tokens, following = text[:-1], text[1:]
            file.write("|".join(map(str, tokens)) + "," +
                       "|".join(map(str, following)) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--longest", type=int, default=256)
    args = parser.parse_args()
    paragraphs = [p.strip() for p in args.text.read_bytes().split(b"\n\n")]
    cut = len(paragraphs) * 9 // 10
    args.out.mkdir(parents=True, exist_ok=True)
    for name, part in [("train", paragraphs[:cut]), ("test", paragraphs[cut:])]:
        write(args.out / f"{name}.csv",
              [p for p in part if 0 < len(p) < args.longest])


main()
