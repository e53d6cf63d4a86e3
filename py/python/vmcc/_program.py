"""Calls of the `vmcc` program."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Sequence

#: A claim of the scenario failed, or a condition of a comparison holds.
FAILED = 1
#: Seconds that an interrupted program has to write what it has.
INTERRUPT_TIMEOUT_S = 10


class VmccError(Exception):
    """The program failed; the message is its own, with cause and remedy."""


class InvalidInput(VmccError, ValueError):
    """Wrong use, or a scenario that is not valid."""


class Unsupported(VmccError):
    """This host cannot do it."""


class InterruptedRun(VmccError):
    """The program was interrupted; `run(..., resume=True)` with the same `out` continues."""


ERRORS = {2: InvalidInput, 3: Unsupported, 130: InterruptedRun}


def path() -> str:
    """The program: `$VMCC`, else that of this package, else the first in `PATH`."""
    given = os.environ.get("VMCC")
    if given:
        if not os.access(given, os.X_OK):
            raise VmccError(f"VMCC is {given!r}, which is no program: correct it, or unset it for the package's own")
        return given
    installed = Path(sysconfig.get_path("scripts"), "vmcc")
    found = str(installed) if installed.is_file() else shutil.which("vmcc")
    if found is None:
        raise VmccError("the vmcc program is missing: install the wheel again, or set VMCC to the program's path")
    return found


def call(arguments: Sequence[str], *, progress: bool = False) -> str:
    """Output of the program. A claim that failed is part of it, and no error.

    With `progress` its notes go to standard error while it runs.

    Raises:
        VmccError: the program failed.
    """
    command = [path(), *arguments]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            output, notes = _follow(child) if progress else child.communicate()
        except KeyboardInterrupt:
            _interrupt(child)
            raise
    if child.returncode in (0, FAILED):
        return output
    raise ERRORS.get(child.returncode, VmccError)(_message(output) or notes.strip() or f"{command[0]} ended with code {child.returncode}")


def _message(output: str) -> str | None:
    """Message and remedy of an error's JSON document."""
    try:
        error = json.loads(output)["error"]
    except (ValueError, KeyError, TypeError):
        return None
    return "\n".join(error[part] for part in ("message", "help") if error.get(part))


def _follow(child: subprocess.Popen[str]) -> tuple[str, str]:
    assert child.stdout is not None and child.stderr is not None
    notes = []
    for line in child.stderr:
        notes.append(line)
        sys.stderr.write(line)
    return child.stdout.read(), "".join(notes)


def _interrupt(child: subprocess.Popen[str]) -> None:
    """A notebook's interrupt reaches the kernel's process only."""
    child.send_signal(signal.SIGINT)
    try:
        child.communicate(timeout=INTERRUPT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.kill()


def version() -> str:
    """Version of the program, such as `0.2.0`."""
    return call(["--version"]).split()[-1]
