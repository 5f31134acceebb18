"""Whether tokens arrived one by one, or had been waiting somewhere. Layer: ``engines``.

A server, a proxy or a busy machine may hold tokens back and hand them over together. Each is then
stamped when it was read, which is not when it was made. In the middle of a generation that spoils
single gaps; at either end it spoils the total.
"""

from __future__ import annotations

from collections.abc import Iterator

from regimescope.engines.base import Clock, Step
from regimescope.errors import EngineError
from regimescope.reasons import Reason

# A chunk that is there so soon after it was asked for was there before: reading and decoding one
# took 10 to 20 us where this was written, and no server makes 10,000 tokens a second for a single
# request.
WAITED_NS = 100_000
# By this share a total may be off: a fifth of the least slowdown that counts, which is 25 %.
MOST_SHARE = 0.05


class Arrivals:
    """Watches the steps of one generation arrive."""

    def __init__(self, clock: Clock) -> None:
        """Keep the clock on which the steps take their time."""
        self._clock = clock
        self._tokens: list[int] = []
        self._waited: list[bool] = []

    @property
    def bunched(self) -> int:
        """Tokens after the first that had been waiting when they were asked for."""
        pairs = zip(self._tokens, self._waited, strict=True)
        return sum(tokens for tokens, waited in pairs if waited)

    def reasons(self) -> tuple[Reason, ...]:
        """Return the limit that holds where too many single gaps are spoiled."""
        spoiled = self.bunched > MOST_SHARE * sum(self._tokens[1:])
        return (Reason.CHUNKED_STREAM,) if spoiled else ()

    def watch(self, steps: Iterator[Step]) -> Iterator[Step]:
        """Yield the steps unchanged, then judge both ends.

        Raises:
            EngineError: Too many tokens had been waiting at the beginning or at the end, so that
                the time of the whole is unknown.
        """
        now_ns = self._clock.now_ns
        asked_ns = now_ns()
        for step in steps:
            self._waited.append(bool(self._tokens) and now_ns() - asked_ns < WAITED_NS)
            self._tokens.append(step.tokens)
            yield step
            asked_ns = now_ns()
        self._judge()

    def _judge(self) -> None:
        """Refuse a generation whose first or last stamp says nothing of its token."""
        steps = len(self._tokens)
        first, after = self._run(range(1, steps)), sum(self._tokens[1:])
        last = self._run(range(steps - 1, 0, -1)) if first < after else 0
        if first + last > MOST_SHARE * after:
            raise EngineError(
                f"of {sum(self._tokens)} tokens {first} arrived together with the first one and "
                f"{last} with others at the end, so that the time they took is unknown; the server "
                "or this machine was too busy to pass them on",
                reason=Reason.CHUNKED_STREAM,
            )

    def _run(self, places: range) -> int:
        """Return the tokens of the steps that had been waiting, up to the first that had not."""
        tokens = 0
        for place in places:
            if not self._waited[place]:
                break
            tokens += self._tokens[place]
        return tokens
