#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Draws docs/pictures/demo.svg: bars of the demo's result, for light and dark pages.

    vmcc demo --engine sim --json | scripts/demo_picture.py > docs/pictures/demo.svg
"""

import json
import sys
from html import escape

# Title, unit, value of a run's metrics, and decimals.
PANELS = (
    ("Goodput", "Mbit/s", lambda m: m["goodput_bps"] / 1e6, 0),
    ("Share left to the other flow", "%", lambda m: m["competing_share"] * 100, 0),
    ("Median RTT", "ms", lambda m: m["rtt_us"]["p50"] / 1e3, 1),
)
LABEL_WIDTH, BAR_WIDTH, GAP, ROW, TOP = 118, 150, 60, 24, 30
STYLE = (
    "text{font:12px sans-serif;fill:#1d2530}.t{font-weight:bold}rect{fill:#9db8d8}.own{fill:#2f6db5}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e9ed}rect{fill:#4a5b70}.own{fill:#7fb0f5}}"
)


def panel(title, unit, values, decimals, x):
    """One panel's elements: a bar per case, the last case highlighted."""
    yield f'<text class="t" x="{x}" y="16">{escape(title)} [{unit}]</text>'
    top = max(values)
    for row, value in enumerate(values):
        y = TOP + row * ROW
        own = ' class="own"' if row == len(values) - 1 else ""
        width = BAR_WIDTH * value / top
        yield f'<rect{own} x="{x}" y="{y}" width="{width:.1f}" height="16" rx="2"/>'
        yield f'<text x="{x + width + 5:.1f}" y="{y + 12}">{value:.{decimals}f}</text>'


def main():
    summary = json.load(sys.stdin)
    cases = summary["cases"]
    names = [case["set"]["variant"] for case in cases]
    width = LABEL_WIDTH + len(PANELS) * (BAR_WIDTH + GAP)
    height = TOP + len(cases) * ROW
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">')
    print(f"<title>{escape(summary['title'])}</title><style>{STYLE}</style>")
    for row, name in enumerate(names):
        print(f'<text x="{LABEL_WIDTH - 8}" y="{TOP + row * ROW + 12}" text-anchor="end">{escape(name)}</text>')
    for index, (title, unit, of, decimals) in enumerate(PANELS):
        values = [of(case["runs"][0]["metrics"]) for case in cases]
        print(*panel(title, unit, values, decimals, LABEL_WIDTH + index * (BAR_WIDTH + GAP)), sep="\n")
    print("</svg>")


if __name__ == "__main__":
    main()
