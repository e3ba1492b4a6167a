"""A pull request that doubles the maximum of nodes: what it costs before and after, and the setting that it needs."""

from __future__ import annotations

from collections.abc import Callable

from rehearsal.report.markdown import markdown
from rehearsal.report.outcome import Outcome


def test_comment_on_a_doubled_maximum_has_both_costs_and_the_setting(rehearse: Callable[..., Outcome]) -> None:
    outcome = rehearse("gke", changes=("nodes.max=8",))
    comment = markdown(outcome)
    assert (outcome.ok, outcome.phases[-1].name) == (False, "change")
    assert "List price per hour, at most: $340.15 → $679.38." in comment
    assert "from at most $339.23 to at most $678.46 an hour" in comment
    assert "set budget.hourly to 680" in comment


def test_change_that_names_the_new_amount_is_applied(rehearse: Callable[..., Outcome]) -> None:
    outcome = rehearse("gke", changes=("nodes.max=8", "budget.hourly=680"))
    assert outcome.ok
    assert "List price per hour, at most: $340.15 → $679.38." in markdown(outcome)
