"""One id for the whole run, whatever its name holds."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from pretrainctl.records.run import run_id_for


def test_a_name_of_people_becomes_a_valid_id():
    assert re.fullmatch(r"7B-main-run-1-[0-9a-f]{8}", run_id_for("7B main/run #1", "x"))
    assert re.fullmatch(r"ablation-[0-9a-f]{8}", run_id_for("ablation ä", "x"))
    assert re.fullmatch(r"run-[0-9a-f]{8}", run_id_for("ä", "x"))


def test_the_id_is_fixed_by_name_and_salt_and_nothing_else():
    assert run_id_for("a b", "1") == run_id_for("a b", "1")
    assert len({run_id_for("a b", "1"), run_id_for("a b", "2"), run_id_for("a/b", "1")}) == 3


@given(st.text(max_size=300), st.text(max_size=20))
def test_every_name_gives_a_valid_id(name, salt):
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", run_id_for(name, salt))
