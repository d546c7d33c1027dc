"""The bill of materials names every pin, with its hashes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from scripts import sbom
from tests.architecture import tree


def test_every_pin_is_a_component_and_nothing_else() -> None:
    texts = [(tree.ROOT / "pins" / f"{name}.txt").read_text("utf-8") for name in sbom.SCOPES]
    pins = set(re.findall(r"^([a-z0-9-]+)==([^\s;\\]+)", "\n".join(texts), re.MULTILINE))

    found = _document()

    assert pins == {(one["name"], one["version"]) for one in found["components"]}
    assert all(one["hashes"] for one in found["components"])


def test_document_names_the_release_and_its_parts_once() -> None:
    found = _document()
    refs = [one["bom-ref"] for one in found["components"]]

    assert ("CycloneDX", "1.6", 1) == (found["bomFormat"], found["specVersion"], found["version"])
    assert re.fullmatch(
        r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", found["serialNumber"]
    )
    assert "holdfast-queue" == found["metadata"]["component"]["name"]
    assert len(refs) == len(set(refs))
    assert refs == sorted(refs)


def test_scopes_tell_what_the_library_needs_from_what_only_tests_need() -> None:
    scopes = {one["name"]: one["scope"] for one in _document()["components"]}

    assert "required" == scopes["msgspec"] == scopes["click"]
    assert "optional" == scopes["pytest"] == scopes["psycopg"]
    assert "excluded" == scopes["atheris"]


def test_same_pins_give_the_same_document() -> None:
    command = [sys.executable, "-m", "scripts.sbom"]

    first, second = (
        subprocess.run(command, cwd=tree.ROOT, capture_output=True, check=True).stdout
        for _ in range(2)
    )

    assert first == second
    assert json.loads(first) == _document()


def test_a_line_that_is_no_pin_is_refused() -> None:
    with pytest.raises(ValueError, match="not a pin: 'click>=8'"):
        list(sbom.pinned("click>=8\n"))


def _document() -> dict[str, Any]:
    return dict(sbom.document())
