"""Ranks and differences of the evidence's tables, on cells whose answers are known by hand."""

import standings

CELLS = {
    "alike": {"ours": {0: 80.0, 1: 81.0}, "theirs": {0: 79.5, 1: 81.5}},
    "surely behind": {"ours": {0: 70.0, 1: 70.5}, "theirs": {0: 73.0, 1: 73.5}},
    "perhaps behind": {"ours": {0: 60.0, 1: 64.0}, "theirs": {0: 64.0, 1: 64.0}},
    "ahead": {"ours": {0: 90.0, 1: 90.2}, "theirs": {0: 80.0, 1: 81.0}},
}


def told(cells: standings.Scores) -> dict[str, dict[str, str]]:
    rows = standings.rows(cells, "ours")
    return {row[0]: dict(zip(standings.COLUMNS, row, strict=True)) for row in rows}


def test_cell_counts_as_behind_when_its_error_cannot_explain_a_point() -> None:
    theirs = told(CELLS)["theirs"]
    assert theirs["a point behind"] == "1"
    assert theirs["ahead in"] == "1"
    assert (theirs["least difference"], theirs["where"]) == ("-3.0 ± 0.0", "surely behind")


def test_single_seed_counts_without_an_error() -> None:
    first = {
        cell: {rule: {0: own[0]} for rule, own in rules.items()} for cell, rules in CELLS.items()
    }
    assert told(first)["theirs"]["a point behind"] == "2"


def test_rank_is_the_mean_over_cells_that_all_rules_ran_in() -> None:
    more = CELLS | {"alone": {"ours": {0: 50.0}}}
    found = told(more)
    assert (found["ours"]["rank"], found["theirs"]["rank"]) == ("1.62", "1.38")
