"""Schedule a pre-training run: its length, its learning rate, and the phase of each step."""

from bisect import bisect_right
from dataclasses import dataclass

from ...pipeline.errors import UserError
from ..config import PretrainConfig
from ..training.optim import default_warmup, learning_rate

PHASE_SHARES = (0.9, 0.1)
"""Shares of the steps for the first and the second of two directories, as in the paper."""


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


def make_schedule(config: PretrainConfig, mean_lengths: list[float]) -> Schedule:
    """Return the schedule for phases on rows of these mean lengths in tokens."""
    decay_share = None
    if config.schedule == "constant-with-decay":
        decay_share = config.decay_share
    if config.hours is not None:
        budget_s = config.hours * 3600
        return Schedule(config.peak_rate, budget_s=budget_s, decay_share=decay_share)
    num_steps = config.steps
    if config.tokens is not None:
        shares: tuple[float, ...] = (1.0,)
        if len(mean_lengths) == 2:
            shares = PHASE_SHARES
        # Real tokens, without padding; a row of the second phase usually has several times more.
        row_tokens = sum(share * mean for share, mean in zip(shares, mean_lengths, strict=True))
        num_steps = max(1, round(config.tokens / (config.batch_size * row_tokens)))
    assert num_steps is not None, "see `plan.instance_defaults`"
    warmup_steps = config.warmup_steps
    if warmup_steps is None:
        warmup_steps = default_warmup(num_steps)
    if warmup_steps > num_steps:
        raise UserError(
            f"`warmup_steps` is {warmup_steps}, but the budget allows only {num_steps} steps; "
            "lower it."
        )
    if len(mean_lengths) == 1:
        return Schedule(config.peak_rate, num_steps, warmup_steps, decay_share=decay_share)
    if num_steps < 2:
        raise UserError(
            "Two directories of instances need at least two steps, but the budget is one; raise it."
        )
    # Each phase has a step at least.
    first_phase = min(round(num_steps * PHASE_SHARES[0]), num_steps - 1)
    return Schedule(
        config.peak_rate,
        num_steps,
        warmup_steps,
        phase_ends=(first_phase,),
        decay_share=decay_share,
    )
