"""The import graph has no cycle, and every module stands in a layer."""

from __future__ import annotations

import tomllib

import grimp

from tests.architecture import tree

CONTRACTS = tomllib.loads((tree.ROOT / "pyproject.toml").read_text("utf-8"))["tool"][
    "importlinter"
]["contracts"]
ROOT_MODULES = {"__init__", "__main__", "app", "config", "errors"}


def test_no_module_imports_itself_through_others_lazily_or_for_types() -> None:
    graph = grimp.build_graph("holdfast", cache_dir=None)
    found = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}

    assert [] == _cycle(found)


def test_every_module_is_in_a_contract_by_its_folder() -> None:
    (layers,) = (c for c in CONTRACTS if c.get("containers") == ["holdfast"])
    named = {name for layer in layers["layers"] for name in layer.split(" : ")}

    modules = [path.relative_to(tree.PACKAGE).with_suffix("").parts for path in tree.sources(".py")]

    assert layers["exhaustive"] is True
    assert set() == {parts[0] for parts in modules} - named - {"__init__"}


def test_root_holds_five_modules() -> None:
    found = {path.stem for path in tree.sources(".py") if path.parent == tree.PACKAGE}

    assert ROOT_MODULES == found


def _cycle(imports: dict[str, set[str]]) -> list[str]:
    """Return the modules of one cycle; empty when there is none."""
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for other in sorted(imports[name]):
            if other in imports and (found := walk(other, [*path, name])):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(imports) if (found := walk(name, []))), [])
