"""Writes the bill of materials of a release: CycloneDX JSON, from pins/.

`python -m scripts.sbom > sbom.json`. The same pins give the same document, byte for byte.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCOPES = {"core": "required", "full": "optional", "fuzz": "excluded"}
"""File of pins -> scope: what the library needs, what extras and tests add, what fuzzing adds."""
PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\]+))?")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
NAMESPACE = uuid.UUID("8f0c2c52-7d0c-5d3e-9a7e-3b6a54d0c5a1")
Component = dict[str, object]


def document(root: Path = ROOT) -> Component:
    """Return the bill of materials of a checkout."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    name, version = project["project"]["name"], _version(root, project)
    components: dict[str, Component] = {}
    for file, scope in SCOPES.items():
        for found in pinned((root / "pins" / f"{file}.txt").read_text("utf-8")):
            component = _of(found, scope)
            components.setdefault(str(component["purl"]), component)
    parts = [components[key] for key in sorted(components)]
    content = json.dumps([name, version, parts], sort_keys=True)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, content)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": _purl(name, version),
                "name": name,
                "version": version,
                "purl": _purl(name, version),
                "licenses": [{"license": {"id": project["project"]["license"]}}],
            }
        },
        "components": parts,
    }


def pinned(text: str) -> Iterator[dict[str, object]]:
    """Yield name, version, marker and hashes of each pin of a file."""
    for entry in re.split(r"\n(?=\S)", text.strip()):
        match = PIN.match(entry)
        if match is None:
            raise ValueError(f"not a pin: {entry.splitlines()[0]!r}")
        yield {
            "name": match["name"],
            "version": match["version"],
            "marker": (match["marker"] or "").strip(),
            "hashes": HASH.findall(entry),
        }


def _of(found: Mapping[str, object], scope: str) -> Component:
    purl = _purl(str(found["name"]), str(found["version"]))
    hashes = found["hashes"]
    assert isinstance(hashes, list)
    component: Component = {
        "type": "library",
        "bom-ref": purl,
        "name": found["name"],
        "version": found["version"],
        "purl": purl,
        "scope": scope,
        "hashes": [{"alg": "SHA-256", "content": one} for one in hashes],
    }
    if found["marker"]:
        component["properties"] = [{"name": "python:marker", "value": found["marker"]}]
    return component


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def _version(root: Path, project: Mapping[str, dict[str, dict[str, dict[str, str]]]]) -> str:
    text = (root / project["tool"]["hatch"]["version"]["path"]).read_text("utf-8")
    found = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    if found is None:
        raise ValueError("the file of the version has none")
    return found[1]


if __name__ == "__main__":
    json.dump(document(), sys.stdout, indent=2)
    sys.stdout.write("\n")
