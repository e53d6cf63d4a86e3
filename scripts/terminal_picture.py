#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Draws a terminal's screen as SVG, for light and dark pages.

    tmux capture-pane -ep | scripts/terminal_picture.py > docs/pictures/top.svg

Of the text's attributes bold, dim and reverse are drawn.
"""

import re
import sys
from html import escape

CELL_WIDTH, LINE, MARGIN = 7.2, 16, 12
STYLE = (
    "text{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1d2530;white-space:pre}"
    ".b{font-weight:bold}.d{fill:#6b7682}.r{fill:#fff}rect{fill:#f6f8fa}.bar{fill:#2f6db5}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e9ed}.d{fill:#9aa5b1}.r{fill:#10151b}rect{fill:#161b22}.bar{fill:#7fb0f5}}"
)
CLASSES = {"1": "b", "2": "d", "7": "r"}


def runs(line, attribute):
    """The parts of a line with one attribute each: (attribute, column, text); and the attribute after it."""
    parts, column = [], 0
    for code, text in re.findall(r"(?:\x1b\[([\d;]*)m)?([^\x1b]*)", line):
        for one in code.split(";") if code else ():
            attribute = CLASSES.get(one, "" if one == "0" else attribute)
        if text:
            parts.append((attribute, column, text))
            column += len(text)
    return parts, attribute


def main():
    lines = sys.stdin.read().rstrip("\n").split("\n")
    columns = max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in lines)
    width, height = columns * CELL_WIDTH + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}"><style>{STYLE}</style>')
    print('<rect width="100%" height="100%" rx="6"/>')
    attribute = ""
    for row, line in enumerate(lines):
        parts, attribute = runs(line, attribute)
        y = MARGIN + row * LINE
        for kind, column, text in parts:
            x, length = MARGIN + column * CELL_WIDTH, len(text) * CELL_WIDTH
            if kind == "r":
                print(f'<rect class="bar" x="{x:.1f}" y="{y}" width="{columns * CELL_WIDTH - x + MARGIN:.1f}" height="{LINE}"/>')
            style = f' class="{kind}"' if kind else ""
            print(f'<text{style} x="{x:.1f}" y="{y + 12}" textLength="{length:.1f}">{escape(text)}</text>')
    print("</svg>")


if __name__ == "__main__":
    main()
