"""The mutants keep up with the code, so that ``make mutants`` can plant every one."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.mutants.__main__ import LAYERS, MUTANTS, ROOT, chosen_by
from tests.mutants.mutant import Mutant, RottenMutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.file}: {m.why}")
def test_mutant_finds_its_text_exactly_once(mutant: Mutant) -> None:
    text = (ROOT / mutant.path).read_text("utf-8")

    assert 1 == text.count(mutant.old)
    assert mutant.old != mutant.new


def test_mutants_are_many_and_each_is_named_once() -> None:
    names = Counter((mutant.file, mutant.why) for mutant in MUTANTS)

    assert [] == [name for name, count in names.items() if count > 1]
    assert len(MUTANTS) >= 30


def test_every_layer_of_a_mutant_exists() -> None:
    named = {layer for mutant in MUTANTS for layer in mutant.layers}

    assert named <= LAYERS.keys()
    missing = [file for files, _ in LAYERS.values() for file in files if not (ROOT / file).exists()]
    assert [] == missing


def test_rotten_mutant_is_an_error() -> None:
    rotten = Mutant("model/job.py", "no such text", "", "never", ("lifecycle",))

    with pytest.raises(RottenMutant):
        rotten.apply(ROOT)


def test_mutants_are_chosen_by_words_in_file_or_reason() -> None:
    assert list(MUTANTS) == chosen_by([])
    assert {"model/policy.py"} == {mutant.file for mutant in chosen_by(["policy.py"])}
