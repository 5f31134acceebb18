"""The two protocols of regimescope, over the network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
import numpy as np

from regimescope.engines.base import Capabilities, EngineRequest, MonotonicClock, Step
from regimescope.errors import CapabilityError, EngineError, SpecError
from regimescope.records import Cell, ModelFacts
from regimescope_example_engine.network import Network

VOCABULARY = 1000
# Width of the state, by model.
MODELS = {"small": 64, "large": 512}
ITEM_BYTES = {"float32": 4, "float64": 8}


class ExampleOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the example engine.

    Attributes:
        positions: Longest context. A recurrent network has no such limit of its own.
    """

    positions: Annotated[int, msgspec.Meta(ge=2)] | None = None


class ExampleSession:
    """A network ready to decode."""

    clock = MonotonicClock()

    def __init__(self, network: Network, facts: ModelFacts) -> None:
        """Take over a network."""
        self._network: Network | None = network
        self._facts = facts
        self._output: list[list[int]] = []

    def facts(self) -> ModelFacts:
        """Return what was loaded."""
        return self._facts

    def generate(
        self, prompt_ids: Sequence[int], cell: Cell, *, stamped: bool = True
    ) -> Iterator[Step]:
        """Yield once per token.

        Raises:
            CapabilityError: The cell asks for more than the network can do.
            EngineError: The session is closed, or the request makes no sense.
        """
        del stamped  # not claimed, so never asked for
        if self._network is None:
            raise EngineError("the session is closed")
        self._check(prompt_ids, cell)
        return self._steps(self._network, prompt_ids, cell)

    def output_ids(self) -> list[list[int]]:
        """Return the tokens of the latest generation, one row per sequence."""
        return [list(row) for row in zip(*self._output, strict=True)]

    def counters(self) -> dict[str, int]:
        """Return no reading: the network's memory does not change."""
        return {}

    def close(self) -> None:
        """Let go of the network."""
        self._network = None

    def _steps(self, network: Network, prompt_ids: Sequence[int], cell: Cell) -> Iterator[Step]:
        """Read the prompt, then decode greedily."""
        sequences = cell.batch or 1
        state, self._output = network.start(sequences), []
        for token in prompt_ids:
            state = network.read(state, np.full(sequences, token))
        for _ in range(cell.budget or 0):
            ids = network.next_ids(state)
            # numpy computes at once: when this line is done, the token is on the host.
            self._output.append(ids.tolist())
            yield Step()
            state = network.read(state, ids)

    def _check(self, prompt_ids: Sequence[int], cell: Cell) -> None:
        """Refuse what cannot be done, before anything is computed."""
        budget, length = cell.budget or 0, len(prompt_ids)
        if budget < 1 or length < 1:
            raise EngineError("a generation needs a prompt and a budget of 1 token or more")
        if not 0 <= min(prompt_ids) <= max(prompt_ids) < VOCABULARY:
            raise EngineError(f"token ids lie outside 0 to {VOCABULARY - 1}")
        if cell.depth or cell.capacity or cell.kv_cache == "off":
            raise CapabilityError(
                "A recurrent network has a state in place of a KV cache.",
                remedy="Leave depth, capacity and kv_cache unset.",
            )
        positions = self._facts.positions
        if positions is not None and length + budget - 1 > positions:
            raise CapabilityError(
                f"Prompt {length} and budget {budget} exceed {positions:,} positions.",
                remedy="Use a smaller budget, or give the option positions.",
            )


class ExampleEngine:
    """Measures the network."""

    name = "example"
    Options = ExampleOptions

    def capabilities(self) -> Capabilities:
        """Return what it can do."""
        return Capabilities(devices=("cpu",), dtypes=tuple(ITEM_BYTES), batch=True)

    def inspect(self, request: EngineRequest) -> ModelFacts:
        """Check a request and return the facts of the network, without drawing its weights.

        Raises:
            SpecError: The model, device, dtype or an option is unknown.
        """
        _check_known("model", request.model, MODELS)
        _check_known("device", request.device, ("auto", "cpu"))
        _check_known("dtype", request.dtype, ITEM_BYTES)
        width = MODELS[request.model]
        parameters = 2 * VOCABULARY * width + 2 * (2 * width) * width
        return ModelFacts(
            device="cpu",
            dtype=request.dtype,
            weights="random",
            vocabulary=VOCABULARY,
            positions=_options(request).positions,
            weight_bytes=parameters * ITEM_BYTES[request.dtype],
            description="numpy",
            versions={"numpy": np.__version__},
        )

    def open(self, request: EngineRequest) -> ExampleSession:
        """Draw the weights.

        Raises:
            SpecError: As ``inspect``.
        """
        facts = self.inspect(request)
        network = Network(VOCABULARY, MODELS[request.model], request.dtype, request.seed)
        return ExampleSession(network, facts)


def _check_known(what: str, asked: str, known: Sequence[str] | dict[str, int]) -> None:
    """Refuse an unknown name.

    Raises:
        SpecError: Naming the known ones.
    """
    if asked not in known:
        raise SpecError(
            f"The example engine has no {what} {asked!r}.", remedy=f"Known: {', '.join(known)}."
        )


def _options(request: EngineRequest) -> ExampleOptions:
    """Decode the raw table of options.

    Raises:
        SpecError: An option is unknown or out of range.
    """
    try:
        return msgspec.convert(request.options, ExampleOptions, strict=False)
    except msgspec.ValidationError as error:
        raise SpecError(
            f"Options of the example engine: {error}.",
            remedy=f"Known options: {', '.join(ExampleOptions.__struct_fields__)}.",
        ) from error
