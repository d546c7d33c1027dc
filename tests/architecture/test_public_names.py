"""What `from holdfast import ...` offers is deliberate, sorted and there."""

from __future__ import annotations

import importlib
import types

import pytest

import holdfast
import tests.contrib.django  # noqa: F401  # sets Django up, which modules of its applications need
from tests.architecture import tree

MODULES = [tree.module_name(path) for path in tree.public_modules()]


def _constants_classes_functions(name: str) -> tuple[int, str]:
    if name.isupper():
        return 0, name
    return (1 if name[0].isupper() else 2), name


@pytest.mark.parametrize("name", MODULES)
def test_exported_names_are_sorted_unique_and_importable(name: str) -> None:
    module = importlib.import_module(name)
    exported = list(getattr(module, "__all__", []))

    assert sorted(set(exported), key=_constants_classes_functions) == exported
    assert [] == [one for one in exported if not hasattr(module, one)]


def test_package_exports_every_public_name_it_holds() -> None:
    held = {
        name
        for name, value in vars(holdfast).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and name != "annotations"
    }

    assert held <= set(holdfast.__all__)


def test_exported_classes_and_functions_are_documented() -> None:
    exported = [(name, getattr(holdfast, name)) for name in holdfast.__all__]
    undocumented = [
        name
        for name, value in exported
        if isinstance(value, type | types.FunctionType) and not (value.__doc__ or "").strip()
    ]

    assert [] == undocumented
