#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Checks the style of code comments, names and documents (CONTRIBUTING.md, "Style of text").

    scripts/prose.py             counts, compared with scripts/prose-limits.json
    scripts/prose.py --list KEY  the places that one count consists of
    scripts/prose.py --update    lowers the limits to what is counted now

The limits are what old text still has. Exit codes: 0 within them, 1 above one, 2 wrong use.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

LIMITS = Path(__file__).with_name("prose-limits.json")

# Constants named after a mood instead of their subject and unit. Parameters (CC_P_...) have the names that users know.
MOOD = re.compile(r"(?<![A-Za-z])(?<!CC_P_DRIZZLE_)(?:PATIENCE|GLANCE|FAREWELL|SELDOM|RARELY|URGENT|DOUBTFUL|MOST_[A-Z]+)(?![A-Za-z])")
# Openings of doc comments: a noun phrase or a verb says more.
WH_OPENING = re.compile(r"\s*(?://[/!]|/\*|\*)\s?(?:What|Who|Whose|Whom|Where|Whether|How|Why|When)\b")
# Phrases that have a field term or a plainer word.
PHRASE = re.compile(r"\b(?:anew|so many|whoever|is let go|are let go|is told|are told|who asks)\b", re.IGNORECASE)
# Names of tests that are riddles: a test is named `subject_verb_condition`.
TEST_ATTRIBUTE = re.compile(r"\s*#\[(?:tokio::)?test\b")
TEST_NAME = re.compile(r"\s*(?:async )?fn (\w+)")
RIDDLE = re.compile(
    r"(?:^|_)(?:what|who|whom|whose|whatever|whoever|nobody|somebody|anew|told|spoken)(?:_|$)"
    r"|^(?:root_|timeless_|guest_|on_linux_)?(?:a|an|the)_"
)
LONG_TEST_NAME = 70
# Words of a sentence in a document, above which it needs a reason.
LONG_SENTENCE = 30


def tracked(*suffixes):
    """Paths of tracked files with one of these suffixes, with their text."""
    names = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if name.endswith(suffixes) and Path(name).is_file():
            yield name, Path(name).read_text(errors="replace")


def is_document(name):
    """Guides and explanations: not measurements, nor what is generated."""
    top = name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
    return top or (name.startswith("docs/") and not re.search("claims|evidence", name))


def sentences(text):
    """Sentences of Markdown: no code, tables, headings or pictures."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for paragraph in re.split(r"\n\s*\n", text):
        if not paragraph.lstrip().startswith(("|", "#", "!", "<")):
            yield from (s for s in re.split(r"(?<=[.!?])\s+", paragraph) if len(s.split()) >= 3)


def findings():
    """For each kind of finding, its places."""
    found = {"mood_names": [], "wh_openings": [], "phrases": [], "long_sentences": [], "test_names": []}
    for name, text in tracked(".rs", ".c", ".h"):
        comment_before = is_test = False
        for number, line in enumerate(text.split("\n"), 1):
            place = f"{name}:{number}: {line.strip()}"
            found["mood_names"] += [place] * len(MOOD.findall(line))
            is_comment = re.match(r"\s*(?://[/!]|/\*|\*)", line) is not None
            found["phrases"] += [place] * (len(PHRASE.findall(line)) if is_comment else 0)
            if is_comment and not comment_before and WH_OPENING.match(line):
                found["wh_openings"].append(place)
            comment_before = is_comment and line.strip() != "/*"
            is_test = is_test or TEST_ATTRIBUTE.match(line) is not None
            if is_test and (function := TEST_NAME.match(line)):
                is_test = False
                if RIDDLE.search(function[1]) or len(function[1]) > LONG_TEST_NAME:
                    found["test_names"].append(place)
    for name, text in tracked(".md"):
        if is_document(name):
            for sentence in sentences(text):
                place = f"{name}: {' '.join(sentence.split())}"
                found["phrases"] += [place] * len(PHRASE.findall(sentence))
                if len(sentence.split()) > LONG_SENTENCE:
                    found["long_sentences"].append(place)
    return found


def main(arguments):
    """The exit code."""
    found = findings()
    if arguments[:1] == ["--list"] and len(arguments) == 2 and arguments[1] in found:
        print(*found[arguments[1]], sep="\n")
        return 0
    counts = {key: len(places) for key, places in found.items()}
    if arguments == ["--update"]:
        LIMITS.write_text(json.dumps(counts, indent=2) + "\n")
        return 0
    if arguments:
        print(f"{__doc__}\nkeys: {', '.join(found)}", file=sys.stderr)
        return 2
    limits = json.loads(LIMITS.read_text())
    for key, count in counts.items():
        verdict = f"more than {limits[key]}: scripts/prose.py --list {key}" if count > limits[key] else "ok"
        print(f"{key:15} {count:5}  {verdict}")
    return int(any(count > limits[key] for key, count in counts.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
