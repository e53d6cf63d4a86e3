"""Scenarios as Python values."""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Mapping, Union

import tomli_w

from . import _program

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: What TOML can hold.
Value = Union[bool, int, float, str, "list[Any]", "dict[str, Any]"]


def scenarios() -> list[str]:
    """Names of the built-in scenarios."""
    document = json.loads(_program.call(["--json", "scenarios"]))
    return [one["name"] for one in document["scenarios"]]


class Scenario:
    """A scenario: the tables of its TOML file (`vmcc scenario schema` has the language's JSON schema).

    Keyword arguments are top-level keys:

        Scenario(
            title="Two paths",
            duration="10s",
            host={"cc": "vmcc"},
            topology={"kind": "parallel-paths", "paths": 2, "rate": "100mbit", "delay": "5ms", "buffer": "100pkt"},
            traffic=[{"kind": "bulk"}],
        )
    """

    def __init__(self, **tables: Any) -> None:
        #: The document; may be changed in place.
        self.tables: dict[str, Any] = tables

    @classmethod
    def parse(cls, text: str) -> Scenario:
        """A scenario from TOML."""
        try:
            return cls(**tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise _program.InvalidInput(f"the scenario is not TOML: {error}") from error

    @classmethod
    def load(cls, path: str | Path) -> Scenario:
        """A scenario from a TOML file."""
        return cls.parse(Path(path).read_text(encoding="utf-8"))

    @classmethod
    def builtin(cls, name: str) -> Scenario:
        """A built-in scenario, as a template."""
        return cls.parse(_program.call(["scenario", "show", name]))

    def changed(self, settings: Mapping[str, Value]) -> Scenario:
        """A copy with other values; keys are paths such as `topology.delay` or `traffic.0.size`."""
        tables = copy.deepcopy(self.tables)
        for key, value in settings.items():
            *parents, last = key.split(".")
            place: Any = tables
            for name in parents:
                place = place[int(name)] if isinstance(place, list) else place.setdefault(name, {})
            place[int(last) if isinstance(place, list) else last] = value
        return Scenario(**tables)

    def toml(self) -> str:
        """The scenario's file."""
        return tomli_w.dumps(self.tables)

    def check(self) -> None:
        """Validates the scenario without running it.

        Raises:
            InvalidInput: with line, key and remedy.
        """
        with tempfile.TemporaryDirectory(prefix="vmcc-") as scratch:
            file = Path(scratch, "scenario.toml")
            file.write_text(self.toml(), encoding="utf-8")
            _program.call(["scenario", "check", str(file)])

    def __repr__(self) -> str:
        return f"Scenario(title={self.tables.get('title')!r}, kind={self.tables.get('topology', {}).get('kind')!r})"


def graph(network: Any, hosts: list[str], **link: Value) -> dict[str, Any]:
    """A `graph` topology from a networkx graph: shortest paths by ECMP between `hosts`.

    An edge's attributes are the keys of its link (`rate`, `delay`, `buffer`, `marking`, ...); `link` has those that an edge
    does not. The edges of an undirected graph are links in both directions, as all links of a scenario are.
    """
    names = {str(node) for node in network.nodes}
    missing = [host for host in hosts if host not in names]
    if missing:
        raise _program.InvalidInput(f"hosts that are no nodes of the graph: {', '.join(missing)}")
    links = [{"from": str(a), "to": str(b), **link, **attributes} for a, b, attributes in network.edges(data=True)]
    return {"kind": "graph", "hosts": hosts, "routing": "ecmp", "links": links}


def toml_value(value: Value) -> str:
    """A value in TOML on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml_value(item)}" for key, item in value.items()) + "}"
    return "[" + ", ".join(map(toml_value, value)) + "]"
