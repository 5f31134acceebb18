"""A minimal gated recurrent network over token ids."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

State = npt.NDArray[np.floating]


class Network:
    """Embedding, one gated recurrent layer, and a head over the vocabulary."""

    def __init__(self, vocabulary: int, width: int, dtype: str, seed: int) -> None:
        """Draw the weights; the same seed draws the same ones."""
        random = np.random.default_rng(seed)

        def weights(*shape: int) -> State:
            # Scaled so that a state neither dies out nor saturates.
            drawn: State = (random.standard_normal(shape) / np.sqrt(shape[0])).astype(dtype)
            return drawn

        self.tokens = weights(vocabulary, width)
        self.gate, self.candidate = weights(2 * width, width), weights(2 * width, width)
        self.head = weights(width, vocabulary)
        self._width, self._dtype = width, dtype

    def start(self, sequences: int) -> State:
        """Return the state before any token, shape (sequences, width)."""
        return np.zeros((sequences, self._width), dtype=self._dtype)

    def read(self, state: State, ids: npt.NDArray[np.integer]) -> State:
        """Return the state after one more token of each sequence, ids of shape (sequences,)."""
        seen = np.concatenate([self.tokens[ids], state], axis=1)
        gate = 1 / (1 + np.exp(-(seen @ self.gate)))
        new: State = (1 - gate) * state + gate * np.tanh(seen @ self.candidate)
        return new

    def next_ids(self, state: State) -> npt.NDArray[np.integer]:
        """Return the most likely next token of each sequence, shape (sequences,)."""
        return np.argmax(state @ self.head, axis=1)
