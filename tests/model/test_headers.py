"""Headers are a small map of strings that spawned jobs inherit."""

from __future__ import annotations

import pytest

from holdfast.model.job import read_extra
from holdfast.model.submission import Spawner
from tests.model.making import faults, job


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ("a=b", "INVALID"),
        ({"a": 1}, "INVALID"),
        ({1: "a"}, "INVALID"),
        ({"a": "\0"}, "INVALID_TEXT"),
        ({"a": "\ud800"}, "INVALID_TEXT"),
        ({"a": "b" * 8192}, "TOO_LARGE"),
        ({"a": "\u00e9" * 4096}, "TOO_LARGE"),
    ],
)
def test_what_is_no_small_map_of_strings_is_refused(headers: object, code: str) -> None:
    assert [("headers", code)] == faults(headers=headers)


def test_headers_up_to_the_limit_are_kept() -> None:
    headers = {"a": "b" * 8191}

    assert headers == read_extra(job(headers=headers).extra).headers


@pytest.mark.parametrize("headers", [None, {}])
def test_job_without_headers_has_no_document(headers: object) -> None:
    assert job(headers=headers).extra is None


def test_spawned_job_inherits_headers_unless_it_brings_its_own() -> None:
    parent = job(headers={"trace": "1"})
    spawner = Spawner(parent.id, "k", parent.extra)

    assert {"trace": "1"} == read_extra(job(spawner=spawner).extra).headers
    assert {"own": "2"} == read_extra(job(spawner=spawner, headers={"own": "2"}).extra).headers
    assert job(spawner=Spawner(parent.id, "k")).extra is None
