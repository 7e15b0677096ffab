"""The ladder of precisions: where a solve starts, when it climbs, and what its passes cost."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict

from halfgp.errors import InputError, OutOfRangeError
from halfgp.operators.base import Operator, rung_name
from halfgp.precision import Precision
from halfgp.solvers.base import Climb
from halfgp.solvers.gap import GapMonitor
from halfgp.solvers.state import State

PROGRESS = 0.9  # a check that shows more of the last residual than this has stagnated
CONTRACTION = 0.1  # a rung must gain a digit between checks, or the next one is cheaper
DIVERGENCE = 2.0  # times the best true residual
OVERTAKEN = 0.5  # of the recurrence's residual: what it does not know of
LARGEST_RHO = 0.25  # of 16 bits: above it, refinement by rho / (1 - rho) gains less than half a digit
# Of single, whose errors are as good as random: few residuals meet the direction that rho is the gain of. At
# 1.3 it contracted by 4, and at three times that 312 iterations needed no climb (both on kin40k); a climb
# costs a third of what double would have from the start.
LARGEST_RHO_OF_SINGLE = 8.0
# Of single beside a preconditioner that is near A, which tells what A^-1 makes of a random residual: the part
# of it that an error of A brings back. At 0.01 and 0.12 single took as many iterations as double (kin40k, and
# 60,000 rows of houseelectric); at 1.7 it climbed after eight (bike).
LARGEST_RETURN = 0.3
LEFT_BY_SINGLE = 1 / 1000  # of rho: the residual at which single stagnates; 1/1300 where it was measured


class Ladder:
    """The rungs a solve may use, the one it is on, and a count of the products on each.

    Attributes:
        system: the current rung.
        given: A as the caller has it, which preconditioners are built from.
        wide: A for true residuals, in double unless the caller wants less.
        passes: by the name of the rung.
        climbs: so far.
    """

    def __init__(
        self, system: Operator, precision: str | Precision, wide: str | Precision = "double"
    ) -> None:
        self.given, self.wide = system, system.with_precision(wide)
        self.passes: Counter[str] = Counter()
        self.climbs: list[Climb] = []
        self.fixed = precision != "auto"
        if self.fixed:
            chosen = system.with_precision(precision)
            if chosen.precision.name != Precision.resolve(precision).name:
                raise InputError(
                    f"`precision={precision!r}` cannot be had from a matrix that is known by its products;"
                    ' use "auto", or pass the matrix itself.'
                )
            self._rungs: tuple[Precision, ...] = (chosen.precision,)
            self.system = chosen
        else:
            self._rungs = system.rungs()
            self.system = system.with_precision(self._rungs[-1])
        self._position = len(self._rungs) - 1

    @property
    def name(self) -> str:
        """Of the current rung."""
        return rung_name(self.system.precision)

    def start(self, monitor: GapMonitor | None, tol: float, gain: float = 0.0) -> None:
        """Go to the lowest rung that pays.

        A check that replaces the residual contracts by about rho = |E| / noise, E being the error of A on
        the rung. A 16-bit rung pays if two checks reach the tolerance, rho² <= tol, for it is not much
        faster than single; single pays as long as it contracts at all, or if it gets there without, for
        double is much slower. Without noise nothing is known of rho, and 16-bit rungs are left
        out. Where it is known, |A^-1 v| / |v| of random v tells more of single than the noise does.

        Args:
            monitor: of the matrix; None where it has no rows.
            tol: the residual that is wanted.
            gain: |A^-1 v| / |v|, about; 0 where it is not known.
        """
        if self.fixed or monitor is None:
            return
        noise = self.wide.least_nugget
        for position, rung in enumerate(self._rungs):
            if noise <= 0.0 and rung.is_sixteen_bit:
                continue
            if rung.is_sixteen_bit:
                limit = min(math.sqrt(tol), LARGEST_RHO)
            else:
                limit = max(tol / LEFT_BY_SINGLE, LARGEST_RHO_OF_SINGLE)
            candidate = self._built(rung)
            if candidate is None:
                continue
            self.system, self._position = candidate, position
            error = monitor.perturbation(candidate)
            gets_there = rung.is_sixteen_bit or error * LEFT_BY_SINGLE <= tol * noise
            returned = 0.0 if gets_there else error * gain
            if noise <= 0.0 or (error <= limit * noise and returned <= LARGEST_RETURN):
                return

    def start_at(self, name: str) -> None:
        """Go to the rung of that name, where there is a choice."""
        for position, rung in enumerate(self._rungs):
            if rung.name == name and (candidate := self._built(rung)) is not None:
                self.system, self._position = candidate, position
                return

    def climb(self, iteration: int, reason: str) -> bool:
        """Take the next rung that can be built, if there is one."""
        source = self.name
        for position in range(self._position + 1, len(self._rungs)):
            candidate = self._built(self._rungs[position])
            if candidate is not None:
                self.system, self._position = candidate, position
                self.climbs.append(Climb(iteration, source, self.name, reason))
                return True
        return False

    def state(self) -> State:
        """Where it is, and how it came there."""
        climbs = [asdict(climb) for climb in self.climbs]
        return {"position": self._position, "passes": dict(self.passes), "climbs": climbs}

    def restore(self, state: State) -> None:
        """Go on from there."""
        self._position = state["position"]
        self.passes = Counter(state["passes"])
        self.climbs = [Climb(**climb) for climb in state["climbs"]]
        if not self.fixed:
            self.system = self.wide.with_precision(self._rungs[self._position])

    def _built(self, rung: Precision) -> Operator | None:
        """The matrix on a rung; None where its points or variances are out of the range of that format."""
        try:
            return self.wide.with_precision(rung)
        except OutOfRangeError:
            return None
