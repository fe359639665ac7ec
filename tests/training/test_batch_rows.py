"""From groups to rows: a fault is in no mean, no count and no row; every sampled token is in exactly one."""

from __future__ import annotations

import numpy as np
import pytest
from support.rollouts import group, rollout, row

from etude.training.batch import training_rows
from etude.training.summary import group_figures, summarize


def test_advantages_are_of_the_group_and_go_to_every_row_of_a_trajectory() -> None:
    groups = [
        group(rollout(1.0, row(3, 2), row(4, 1)), rollout(0.0), rollout(1.0), rollout(1.0)),
        group(rollout(0.5), rollout(0.5), number=1),
    ]
    rows = training_rows(groups, "mean")
    assert [each.advantage for each in rows] == pytest.approx([0.25, 0.25, -0.75, 0.25, 0.25, 0.0, 0.0])
    assert [each.trajectory for each in rows] == [0, 0, 1, 2, 3, 4, 5]
    assert sum(each.num_actions for each in rows) == 2 + 1 + 5 * 2


def test_shuffled_advantages_are_the_same_ones_within_each_group() -> None:
    rewards = [[1.0, 0.0, 0.5, 0.25], [1.0, 1.0, 0.0, 0.0]]
    groups = [group(*map(rollout, each), number=number) for number, each in enumerate(rewards)]
    plain = [row.advantage for row in training_rows(groups, "mean")]
    orders = set()
    for seed in range(20):
        mixed = [row.advantage for row in training_rows(groups, "mean", np.random.default_rng(seed))]
        assert sorted(mixed[:4]) == sorted(plain[:4])
        assert sorted(mixed[4:]) == sorted(plain[4:])
        orders.add(tuple(mixed))
    assert len(orders) > 10


def test_a_fault_is_not_there_at_all() -> None:
    with_fault = training_rows([group(rollout(1.0), rollout(None), rollout(0.0))], "grpo")
    without = training_rows([group(rollout(1.0), rollout(0.0))], "grpo")
    assert [each.advantage for each in with_fault] == [each.advantage for each in without]


def test_a_row_in_which_nothing_was_sampled_trains_nothing() -> None:
    rows = training_rows([group(rollout(1.0, row(3, 0), row(1, 2)), rollout(0.0))], "mean")
    assert [len(each) for each in rows] == [3, 4]


def test_rows_keep_tokens_versions_and_log_probabilities() -> None:
    source = row(2, 3, version=5)
    made = training_rows([group(rollout(1.0, source), rollout(0.0))], "mean")[0]
    assert made.tokens is source.tokens
    assert made.version is not None
    assert (made.version[made.action_mask] == 5).all()
    assert np.isnan(made.logp_rollout[~made.action_mask]).all()


def test_figures_are_over_what_was_scored() -> None:
    rollouts = [
        rollout(1.0, turns=2, metrics={"answer_correct": 1.0}, parse_failures={"bad_json": 2}),
        rollout(0.0, turns=4, metrics={"answer_correct": 0.0}),
        rollout(None, turns=9),
    ]
    figures = summarize(rollouts, [rollout(None)])
    assert figures["reward/mean"] == 0.5
    assert figures["turns"] == 3
    assert figures["metric/answer_correct"] == 0.5
    assert figures["rollouts/scored"] == 2
    assert figures["outcome/env_fault"] == 2
    assert figures["parse_failure/bad_json"] == 2
    assert figures["reward/std"] == pytest.approx(np.std([1.0, 0.0], ddof=1))


def test_nothing_scored_has_no_mean() -> None:
    figures = summarize([rollout(None)])
    assert "reward/mean" not in figures
    assert figures["outcome/env_fault"] == 1


def test_groups_without_variance_are_counted() -> None:
    figures = group_figures([group(rollout(1.0), rollout(0.0)), group(rollout(1.0), rollout(1.0))])
    assert figures["groups/trained"] == 2
    assert figures["groups/zero_variance"] == 1
    assert figures["reward/std_in_group"] == pytest.approx(np.std([1.0, 0.0], ddof=1) / 2)
