"""`etude check` finds graders that can be had without the answer, and raises nothing on sound ones."""

from __future__ import annotations

from functools import partial

import pytest
from support.hackable_graders import HACKABLE
from support.rollouts import rollout
from support.sound_graders import SOUND, capital_rows, exact, make

from etude.environment.scenario import Scenario
from etude.evaluation.checks.attacks import DECOYS
from etude.evaluation.checks.run import check_environment as check_whole
from etude.evaluation.checks.values import same, wrong_values
from etude.evaluation.checks.verdicts import Tally
from etude.rollout.rollout import Rollout

check_environment = partial(check_whole, scenarios=4)


@pytest.mark.parametrize("name", SOUND)
def test_sound_graders_raise_nothing(name: str) -> None:
    report = check_environment(SOUND[name]())
    assert report.findings == ()
    assert report.gold_reward is not None
    assert report.wrong_reward is not None
    assert report.gold_reward > report.wrong_reward


@pytest.mark.parametrize("name", HACKABLE)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_hackable_graders_fail(name: str) -> None:
    made, expected = HACKABLE[name]
    report = check_environment(made())
    found = {each.check.removeprefix("attack.") for each in report.failures}
    assert found & expected, found


def test_a_finding_says_what_was_tried_and_what_it_earned() -> None:
    report = check_environment(HACKABLE["0.6 for a no-op"][0]())
    finding = next(each for each in report.failures if each.check == "attack.idk")
    assert "know" in finding.evidence["attempt"]
    assert finding.evidence["reward"] == 0.6
    assert finding.evidence["gold_reward"] == 1.0
    assert finding.seen == finding.of == 4
    assert finding.advice
    assert finding.scenario.startswith("train-")


def test_what_is_allowed_is_no_failure_and_keeps_its_reason() -> None:
    environment = HACKABLE["declining pays"][0]()
    report = check_environment(environment, allow={"attack.idk": "abstaining is wanted"})
    assert not report.failures
    assert [each.allowed for each in report.findings] == ["abstaining is wanted"]
    assert report.to_json()["passed"] is True


def test_a_field_without_a_conventional_name_is_found_or_can_be_named() -> None:
    rows = [{"question": row["question"], "town": row["answer"]} for row in capital_rows()]

    def right(one: Rollout, scenario: Scenario) -> float:
        return exact(one, Scenario(scenario.id, scenario.split, {"answer": scenario["town"]}))

    for reference in (None, "town"):
        report = check_environment(make("towns", right, rows), reference=reference)
        assert report.gold == "field 'town'"
        assert report.findings == ()


def test_where_no_attempt_is_right_the_check_says_so() -> None:
    report = check_environment(make("never", lambda one, scenario: 0.0))
    assert [(each.severity, each.check) for each in report.findings] == [("warn", "gold")]
    assert "--reference" in report.findings[0].advice


def test_a_grader_that_differs_from_itself_is_found() -> None:
    draws = iter(range(10_000_000))
    report = check_environment(
        make("noisy", lambda one, scenario: exact(one, scenario) * (0.7 + next(draws) % 2 * 0.3))
    )
    assert "judge" in {each.check for each in report.failures}


def test_a_grader_that_breaks_is_named_with_its_line() -> None:
    def fragile(one: Rollout, scenario: Scenario) -> float:
        return exact(one, scenario) if one.answer is not None else float(one.answer.strip())

    report = check_environment(make("fragile", fragile))
    assert [each.check for each in report.findings] == ["fault.grader"]
    assert "test_check_graders.py, line" in report.findings[0].message
    assert report.findings[0].severity == "warn"


def test_wrong_answers_are_none_of_the_accepted_ones() -> None:
    assert wrong_values(["Paris", ["paris!", "Lutetia"]], ["Lutetia", "PARIS", "Oslo"], count=1) == ["Oslo"]
    assert wrong_values([40], [41, 39, 400], invent=False) == [400]
    assert wrong_values([["a", "b"]], [["b", "c"], ["x"]], invent=False) == [["x"]]
    assert not any(same(str(each), 140) for each in wrong_values([140], []))
    assert wrong_values(["yes"], []) == ["no"]


def test_a_single_lucky_scenario_is_no_finding() -> None:
    lucky = Tally(worked={"a"}, tried={"a", "b", "c", "d"}, best=(1.0, rollout(1.0), None, ""))  # type: ignore[arg-type]
    assert not lucky.counts(0.25)
    lucky.worked.add("b")
    assert lucky.counts(0.5)
    assert not lucky.counts(0.6)


def test_an_f1_gives_little_to_a_listing() -> None:
    assert 2 / (2 + DECOYS) < 0.2
