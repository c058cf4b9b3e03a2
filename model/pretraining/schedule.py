"""Schedule a pre-training run: its length, its learning rate, and the phase of each step."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from ...pipeline.config import check
from ...pipeline.errors import UserError
from ..config import PretrainConfig
from ..training.optim import learning_rate


@dataclass(frozen=True)
class Schedule:
    """Pure functions of the step, and for a budget of hours of the seconds of training."""

    peak_rate: float
    num_steps: int | None = None
    """None for a budget of hours."""
    warmup_steps: int = 0
    budget_s: float | None = None
    """None for a budget of steps or tokens."""
    phase_ends: tuple[int, ...] = ()
    """The first step of each phase but the first."""
    decay_share: float | None = None
    """The last steps, in which a constant rate decays; None for a rate that decays all the time."""

    @property
    def log_every(self) -> int:
        """Steps between two lines of the log: about 200 lines a run, at most 100 steps apart."""
        if self.num_steps is None:
            return 10  # how many steps fit into the hours is unknown
        return max(1, min(100, self.num_steps // 200))

    def learning_rate(self, step: int, seconds: float) -> float:
        """Return the rate of the update with index `step`, after `seconds` of training."""
        if self.budget_s is not None:
            # The last update begins before the end, but may be reported after it.
            at = min(seconds, self.budget_s)
            warmup = 0.1 * self.budget_s  # a tenth, as of steps
            end = self.budget_s
        else:
            assert self.num_steps is not None
            at = step
            warmup = self.warmup_steps
            end = self.num_steps
        return learning_rate(at, self.peak_rate, warmup, end, self.decay_share)

    def is_over(self, step: int, seconds: float) -> bool:
        """Return whether the budget is spent after `step` updates."""
        if self.budget_s is not None:
            return seconds >= self.budget_s
        return step == self.num_steps

    def phase(self, step: int) -> tuple[int, int]:
        """Return the phase of the update with index `step`, and the update's index within it."""
        # A step that ends one phase is the first of the next. With `phase_ends` (90,):
        #
        #     step     0 1 ... 89    90 91 ...
        #     phase    0 0 ...  0     1  1 ...
        #     index    0 1 ... 89     0  1 ...
        phase = bisect_right(self.phase_ends, step)
        first_steps = (0, *self.phase_ends)
        return phase, step - first_steps[phase]


def phase_shares(config: PretrainConfig, num_phases: int) -> tuple[float, ...]:
    """Return the share of the steps of each phase."""
    shares = config.phase_shares
    if shares is None:
        if num_phases > 2:
            raise UserError(
                f"{num_phases} directories of instances need `phase_shares`, {num_phases} numbers "
                "that add up to 1."
            )
        return (1.0,) if num_phases == 1 else (0.9, 0.1)  # two as in the paper
    if len(shares) != num_phases:
        raise UserError(
            f"`phase_shares` has {len(shares)} numbers, but there are {num_phases} directories of "
            "instances; give one for each."
        )
    return shares


def phase_ends(shares: Sequence[float], num_steps: int) -> tuple[int, ...]:
    """Return the first step of each phase but the first; each phase has a step at least.

    >>> phase_ends((0.9, 0.1), 100), phase_ends((0.98, 0.01, 0.01), 10)
    ((90,), (8, 9))
    """
    num_phases = len(shares)
    if num_steps < num_phases:
        raise UserError(
            f"{num_phases} directories of instances need at least {num_phases} steps, but the "
            f"budget is {num_steps}; raise it."
        )
    ends: list[int] = []
    for phase in range(1, num_phases):
        end = round(num_steps * sum(shares[:phase]))
        first_possible = ends[-1] + 1 if ends else 1
        last_possible = num_steps - (num_phases - phase)
        ends.append(min(max(end, first_possible), last_possible))
    return tuple(ends)


def make_schedule(config: PretrainConfig, mean_lengths: list[float]) -> Schedule:
    """Return the schedule for phases on rows of these mean lengths in tokens."""
    shares = phase_shares(config, len(mean_lengths))
    assert config.learning_rate is not None, "see `plan.model_defaults`"
    decay_share = config.decay_share if config.is_constant else None
    if config.hours is not None:
        budget_s = config.hours * 3600
        return Schedule(config.learning_rate, budget_s=budget_s, decay_share=decay_share)
    num_steps = config.steps
    if config.tokens is not None:
        # Real tokens, without padding; a row of the second phase usually has several times more.
        row_tokens = sum(share * mean for share, mean in zip(shares, mean_lengths, strict=True))
        num_steps = max(1, round(config.tokens / (config.batch_size * row_tokens)))
    assert num_steps is not None, "see `plan.instance_defaults`"
    warmup_steps = config.warmup_steps
    if warmup_steps is None:
        warmup_steps = min(10_000, num_steps // 10)  # the paper's for its 1,000,000 steps
    must = f"the budget allows only {num_steps} steps; lower it"
    check(warmup_steps <= num_steps, "warmup_steps", warmup_steps, must)
    return Schedule(
        config.learning_rate,
        num_steps,
        warmup_steps,
        phase_ends=phase_ends(shares, num_steps),
        decay_share=decay_share,
    )
