"""The schedule: numbers of steps, learning rates, and phases."""

from dataclasses import replace
from typing import Any

import pytest
from clozeworks.model.config import PretrainConfig
from clozeworks.model.pretraining.schedule import make_schedule
from clozeworks.pipeline.errors import UserError


def options(**given: Any) -> PretrainConfig:
    return PretrainConfig(**{"learning_rate": 1e-4, **given})


def number_of_steps(config: PretrainConfig, mean_lengths: list[float]) -> int | None:
    return make_schedule(config, mean_lengths).num_steps


def test_steps_are_those_given_or_as_many_as_hold_the_tokens():
    assert number_of_steps(options(steps=7), [100.0]) == 7
    assert number_of_steps(options(tokens=1_000_000, batch_size=20), [100.0]) == 500
    two = options(tokens=1_400_000, batch_size=20)
    assert number_of_steps(two, [100.0, 500.0]) == 500
    assert number_of_steps(options(hours=2), [100.0]) is None


def test_the_warm_up_is_a_tenth_of_the_steps_and_at_most_the_papers():
    for steps, expected in ((1_000_000, 10_000), (300, 30), (5, 0)):
        assert make_schedule(options(steps=steps), [100.0]).warmup_steps == expected


def test_a_warm_up_longer_than_the_budget_is_named():
    with pytest.raises(UserError, match="`warmup_steps` is 900, but the budget allows only 5"):
        number_of_steps(options(tokens=5000, batch_size=10, warmup_steps=900), [100.0])


def test_a_budget_of_tokens_has_the_schedule_of_its_steps():
    schedule = make_schedule(options(tokens=20_000, batch_size=10), [16.0])
    assert schedule.num_steps == 125
    assert schedule == make_schedule(options(steps=125, batch_size=10), [16.0])


def test_with_hours_the_rate_follows_the_clock():
    schedule = make_schedule(options(hours=0.5, learning_rate=1e-3), [100.0])
    assert [schedule.learning_rate(step, 0.0) for step in (0, 9, 10**9)] == [0, 0, 0]
    assert schedule.learning_rate(3, 90) == pytest.approx(0.5e-3)
    assert schedule.learning_rate(3, 900) == pytest.approx(0.5e-3)
    assert schedule.learning_rate(3, 1800) == schedule.learning_rate(3, 1801) == 0
    assert not schedule.is_over(10**9, 1799.9) and schedule.is_over(0, 1800.0)


def test_each_phase_has_at_least_one_step_and_starts_at_its_own_first():
    def ends(steps: int) -> tuple[int, ...]:
        return make_schedule(options(steps=steps), [100.0, 500.0]).phase_ends

    assert (ends(2), ends(3), ends(8)) == ((1,), (2,), (7,))
    with pytest.raises(UserError, match=r"2 directories .* need at least 2 steps"):
        ends(1)
    for shares, expected in (
        ((0.85, 0.12, 0.03), (17, 19)),
        ((0.01, 0.01, 0.98), (1, 2)),
        ((0.98, 0.01, 0.005, 0.005), (17, 18, 19)),
    ):
        lengths = [100.0] * len(shares)
        schedule = make_schedule(options(steps=20, phase_shares=shares), lengths)
        assert schedule.phase_ends == expected
        assert schedule.phase(expected[-1]) == (len(shares) - 1, 0)
    by_tokens = options(tokens=1_600_000, batch_size=20, phase_shares=(0.5, 0.3, 0.2))
    assert number_of_steps(by_tokens, [100.0, 100.0, 400.0]) == 500


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        (None, "3 directories of instances need `phase_shares`, 3 numbers that add up to 1"),
        ((0.5, 0.5), "`phase_shares` has 2 numbers, but there are 3 directories"),
    ],
)
def test_shares_are_needed_for_more_than_two_phases(shares, message):
    for budget in ({"steps": 20}, {"hours": 1}):
        with pytest.raises(UserError, match=message):
            make_schedule(options(phase_shares=shares, **budget), [100.0] * 3)


def test_rates_of_masks_are_the_runs_or_those_of_each_phase():
    def rates(*given: Any) -> list[tuple[float, ...]]:
        return options(mask_rate=given).mask_rates

    assert rates(0.3) == [(0.3,)]
    assert rates(0.3, 0.15) == [(0.3, 0.15)]
    assert rates((0.3,), (0.15, 0.05)) == rates(0.3, (0.15, 0.05)) == [(0.3,), (0.15, 0.05)]
    assert options().mask_rates == []


def test_a_constant_rate_decays_in_the_last_steps_or_hours():
    config = options(steps=100, learning_rate=1.0, schedule="constant-with-decay", decay_share=0.2)
    schedule = make_schedule(config, [100.0])
    assert schedule.learning_rate(5, 0.0) == 0.5
    assert {schedule.learning_rate(step, 0.0) for step in range(10, 81)} == {1.0}
    assert schedule.learning_rate(95, 0.0) == pytest.approx(1 - (15 / 20) ** 0.5)
    clock = make_schedule(replace(config, steps=None, hours=1), [100.0])
    assert clock.learning_rate(0, 3600 * 0.5) == 1.0
    assert clock.learning_rate(0, 3600 * 0.95) == pytest.approx(1 - (15 / 20) ** 0.5)
    assert clock.learning_rate(0, 4000) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decay_share": 0.5}, "`decay_share` is 0.5, but it has no effect without `schedule`"),
        ({"learning_rate": 10.0}, "expected float <= 1.0"),
        ({"decay_share": 2.0, "schedule": "constant-with-decay"}, "expected float <= 1.0"),
        ({"mask_rate": (0.3,), "dynamic_masking": "none"}, "`mask_rate` is .*no effect with"),
        ({"mask_rate": (0.9,), "dynamic_masking": "token"}, "expected float <= 0.4"),
        ({"mask_rate": (0.3, 0.2, 0.1), "dynamic_masking": "token"}, "one number, or two"),
        ({"mask_rate": (0.3, 0.1), "dynamic_masking": "token", "hours": 1}, "give one number"),
        ({"mask_rate": ()}, "one number, or two"),
        ({"mask_rate": ((0.3,), ())}, "one number, or two"),
        ({"mask_rate": ((0.3,), (0.3, 0.2, 0.1))}, "one number, or two"),
        ({"mask_rate": ((0.3,), (0.9,))}, "expected float <= 0.4"),
        ({"phase_shares": (0.9, 0.2)}, "`phase_shares` is .* must add up to 1"),
        ({"phase_shares": (1.0, 0.0)}, "expected float > 0.0"),
    ],
)
def test_options_of_schedule_and_masks_that_do_not_fit_are_named(changes, message):
    with pytest.raises(UserError, match=message):
        options(**changes)
