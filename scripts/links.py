#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Checks that every path that documents name or link to, and every document that code names, is in the repository.

    scripts/links.py

In tracked Markdown files: links within the repository, with their anchors, and paths from the root of the repository in code and
code blocks. In all other text: paths below `docs/`, with or without an anchor. A path with a part `foo` is an example. Links to
other hosts are not followed. Exit codes: 0 all resolve, 1 one does not.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
PATH = re.compile(r"(?<![\w./~-])(?:algorithms|crates|dist|docs|fuzz|kernel|scenarios|scripts)/[\w./-]*[\w/](?![\w<*{$]|-)")
MENTION = re.compile(r"\bdocs/[\w/.-]+?\.(?:md|txt|svg|dot)\b(?:#[\w-]+)?")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
# An earlier name of a heading, to which released documents link.
ALIAS = re.compile(r'^<a id="([\w-]+)"></a>$', re.MULTILINE)


def tracked():
    """Text of every tracked text file by path; None for binary ones."""
    names = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=True).stdout
    files = {}
    for name in filter(os.path.isfile, names.split("\0")):
        try:
            files[name] = Path(name).read_text()
        except UnicodeDecodeError:
            files[name] = None
    return files


def anchors(markdown):
    """Anchors of its headings, as GitHub and MkDocs make them."""
    found = set(ALIAS.findall(markdown))
    for heading in HEADING.findall(FENCE.sub("", markdown)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        count = 0
        while (slug if count == 0 else f"{slug}-{count}") in found:
            count += 1
        found.add(slug if count == 0 else f"{slug}-{count}")
    return found


def references(name, text):
    """Repository paths, with anchors, that a file refers to."""
    if name.endswith(".md"):
        for url in LINK.findall(FENCE.sub("", text)):
            if not re.match(r"[a-z]+:", url):
                path, _, anchor = url.partition("#")
                yield os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name, anchor
        for code in CODE.findall(text):
            for path in PATH.findall(code):
                if not re.search(r"(?:^|/)foo(?:[./]|$)", path):
                    yield path.rstrip("/"), ""
    else:
        for mention in MENTION.findall(text):
            path, _, anchor = mention.partition("#")
            yield path, anchor


def main():
    """The exit code."""
    files = tracked()
    folders = {str(parent) for name in files for parent in Path(name).parents}
    known = {name: anchors(text) for name, text in files.items() if name.endswith(".md")}
    broken = []
    for name, text in files.items():
        for path, anchor in references(name, text or ""):
            if path not in files and path not in folders:
                broken.append(f"{name}: {path} does not exist")
            elif anchor and anchor not in known.get(path, ()):
                broken.append(f"{name}: {path} has no heading #{anchor}")
    print(*broken, sep="\n", end="\n" if broken else "")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
