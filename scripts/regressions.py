#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of the tests: edits the program as scripts/regressions.toml says, and runs the test that must notice.

    scripts/regressions.py [--tree DIR] [--lock FILE] [NAME...]
    scripts/regressions.py --check

Each test runs four times: without and with the edit, alone and beside two busy loops. A table goes to standard output. Results are
kept in target/regressions; a second call continues after the last one, until the commit changes. DIR is a work tree without
changes, whose files are edited and restored (default: target/regressions/tree, made from the current commit). Tests that load
algorithms hold a lock on FILE. --check only looks whether each edit still applies and each test exists. Exit codes: 0 every edit was noticed and
no test failed without one, 1 otherwise, 2 wrong use.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target" / "regressions"
# Dependencies with the features that scripts/test.sh builds them with, so that they are compiled once.
WORKSPACE = ["--workspace", "--features", "vmcc/kernel,vmcc/root-tests,vmcc-lab/root-tests"]
# Targets whose packages need none of these features; selected in the workspace, those of all packages would be built.
PORTABLE_TARGETS = ("it", "lib")
PRIVATE_RECORDS = "mount -t tmpfs -o mode=755 none /run && mount -t bpf none /sys/fs/bpf && exec \"$@\""
TEST_TIMEOUT_S = 600
BUSY_LOOPS = 2


def git(tree, *arguments):
    """Output of git in a work tree."""
    return subprocess.run(["git", "-C", tree, *arguments], check=True, capture_output=True, text=True).stdout


def locate(tree, suffix):
    """The only tracked file whose path ends so."""
    found = [name for name in git(tree, "ls-files").splitlines() if ("/" + name).endswith("/" + suffix)]
    if len(found) != 1:
        sys.exit(f'regressions: "{suffix}" names {len(found)} files; give it more of its path in regressions.toml')
    return Path(tree) / found[0]


def build(tree, entry):
    """Builds the test's program; its path and the folder to start it in, or None if it does not compile."""
    target = ["--lib"] if entry["target"] == "lib" else ["--test", entry["target"]]
    selection = ["-p", entry["package"]] if entry["target"] in PORTABLE_TARGETS else WORKSPACE
    command = ["cargo", "test", "--locked", "--no-run", "--message-format", "json-render-diagnostics"]
    made = subprocess.run([*command, *selection, *target], cwd=tree, stdout=subprocess.PIPE, text=True)
    if made.returncode:
        return None
    messages = (json.loads(line) for line in made.stdout.splitlines() if line.startswith("{"))
    own = "#" + entry["package"] + "@"
    programs = [m for m in messages if m.get("executable") and m["profile"]["test"] and own in m["package_id"]]
    return (programs[-1]["executable"], Path(programs[-1]["manifest_path"]).parent) if programs else None


def run(entry, program, lock, label):
    """The test's verdict: passed, failed, inconclusive, or missing. Its output is kept under the label."""
    executable, folder = program
    command = [executable, "--exact", entry["test"], "--test-threads=1"]
    if entry["kind"] == "port":
        command = ["unshare", "--mount", "sh", "-c", PRIVATE_RECORDS, "sh", *command]
    if entry["kind"] == "kernel":
        command = ["flock", lock, *command]
    inconclusive = WORK / "inconclusive"
    inconclusive.unlink(missing_ok=True)
    environment = {**os.environ, "VMCC_INCONCLUSIVE": str(inconclusive)}
    with (WORK / f'{entry["name"]}, {label}.log').open("w+") as log:
        try:
            subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, timeout=TEST_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "failed"
        log.seek(0)
        output = log.read()
    if "running 1 test" not in output:
        return "missing"
    if inconclusive.exists():
        return "inconclusive"
    return "passed" if "1 passed" in output else "failed"


@contextlib.contextmanager
def busy_loops():
    """Loops at normal priority for the time of the block."""
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(BUSY_LOOPS)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def unedited(tree, entry):
    """The file that the entry edits, and its text."""
    path = locate(tree, entry["file"])
    text = path.read_text()
    if text.count(entry["old"]) != 1:
        sys.exit(f'regressions: {entry["name"]}: `old` is {text.count(entry["old"])} times in {path}; adapt regressions.toml')
    return path, text


@contextlib.contextmanager
def edited(tree, entry):
    """The tree with the entry's edit for the time of the block."""
    path, text = unedited(tree, entry)
    try:
        path.write_text(text.replace(entry["old"], entry["new"]))
        yield
    finally:
        path.write_text(text)


def verdicts(tree, entry, lock, label):
    """Verdicts alone and beside busy loops."""
    program = build(tree, entry)
    if not program:
        return ["does not compile"] * 2
    alone = run(entry, program, lock, f"{label}, alone")
    with busy_loops():
        return [alone, run(entry, program, lock, f"{label}, busy")]


def scratch_tree():
    """The default work tree, at the current commit."""
    tree = WORK / "tree"
    head = git(ROOT, "rev-parse", "HEAD").strip()
    if not tree.exists():
        git(ROOT, "worktree", "prune")
        git(ROOT, "worktree", "add", "--detach", str(tree), head)
    git(tree, "checkout", "--quiet", "--force", "--detach", head)
    return tree


def main():
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path)
    parser.add_argument("--lock", default=str(WORK / "algorithms"))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["regression"]
    if options.check:
        for entry in table:
            unedited(ROOT, entry)
            function = "fn " + entry["test"].rpartition("::")[2] + "("
            if subprocess.run(["git", "-C", ROOT, "grep", "--quiet", "--fixed-strings", function, "--", "*.rs"]).returncode:
                sys.exit(f'regressions: {entry["name"]}: no test {entry["test"]}; correct its name in regressions.toml')
        return 0
    unknown = set(options.names) - {entry["name"] for entry in table}
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are: {', '.join(entry['name'] for entry in table)}")
    WORK.mkdir(parents=True, exist_ok=True)
    tree = options.tree or scratch_tree()
    if git(tree, "status", "--porcelain", "--untracked-files=no"):
        parser.error(f"{tree} has changes; commit them, or restore with: git -C {tree} checkout .")
    commit = git(tree, "rev-parse", "--short", "HEAD").strip()
    kept = WORK / f"{commit}.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    chosen = [entry for entry in table if not options.names or entry["name"] in options.names]
    # Before any edit: what fails without one says nothing.
    for what, context in (("control", lambda _: contextlib.nullcontext()), ("edit", lambda entry: edited(tree, entry))):
        for entry in chosen:
            if what in results.setdefault(entry["name"], {}):
                continue
            with context(entry):
                results[entry["name"]][what] = verdicts(tree, entry, options.lock, what)
            kept.write_text(json.dumps(results, indent=2))
            print(f'{entry["name"]}: {what}: {", ".join(results[entry["name"]][what])}', file=sys.stderr)
    print(f"Commit {commit}.\n\n| edit | test | without it: alone, busy | with it: alone, busy |\n|---|---|---|---|")
    for entry in chosen:
        control, edit = (", ".join(results[entry["name"]][what]) for what in ("control", "edit"))
        print(f'| {entry["name"]} | `{entry["package"]}` `{entry["test"]}` | {control} | {edit} |')
    good = {"control": ["passed"] * 2, "edit": ["failed"] * 2}
    return int(any(results[entry["name"]] != good for entry in chosen))


if __name__ == "__main__":
    sys.exit(main())
