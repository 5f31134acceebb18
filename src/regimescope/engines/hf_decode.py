"""The decode loop for transformers: one prompt in, tokens out one at a time. Layer: ``engines``.

Both loops are greedy, ignore the end-of-sequence token, and hand tokens over on the device. Whoever
takes them decides when to wait for them: ``tolist`` brings a token to the host and so waits for
everything the device was given before it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from regimescope.engines import hf_attention
from regimescope.engines.hf_cache import CacheMaker, Need
from regimescope.engines.hf_device import import_torch

# One tensor per step, shape (sequences, 1).
Tokens = Iterator[Any]


class Asked(NamedTuple):
    """One generation that has been checked.

    Attributes:
        prompt: Token ids, one row of equal length per sequence.
        budget: Tokens to produce per sequence, 1 or more.
        need: What the cache must hold.
        cached: Whether keys and values are kept between steps.
        filled: A cache that holds ``need.depth`` positions; absent for an empty one.
        stamped: Whether every token is handed over by itself.
    """

    prompt: Sequence[Sequence[int]]
    budget: int
    need: Need
    cached: bool = True
    filled: Any = None
    stamped: bool = True


class Decoder:
    """A model together with the way it wants to be called, looked up once."""

    def __init__(
        self, model: Any, caches: CacheMaker, attention: hf_attention.Attention = "auto"
    ) -> None:
        """Read the signature of the model's ``forward``."""
        self._model, self._caches, self._attention = model, caches, attention
        # The head is applied to the last position only, which is all that greedy decoding needs.
        # A model that does not know this keyword computes the logits of every position.
        known = inspect.signature(model.forward).parameters
        self._fixed = {"logits_to_keep": 1} if "logits_to_keep" in known else {}

    def tokens(self, asked: Asked) -> Tokens:
        """Yield the tokens of a generation.

        Raises:
            CapabilityError: The model takes no cache, or none of this kind.
        """
        return self._with_cache(asked) if asked.cached else self._without_cache(asked)

    def close(self) -> None:
        """Let go of the model and its caches."""
        self._caches.release()
        self._model = None

    def _with_cache(self, asked: Asked) -> Tokens:
        """Yield tokens, keeping keys and values between steps."""
        torch, model = import_torch(), self._model
        keyword = self._caches.keyword
        # Held across the yields, because entering it anew would add about 1 % to a step of 2 ms.
        with torch.inference_mode(), hf_attention.forced(self._attention):
            tokens = torch.tensor(asked.prompt, device=model.device)
            cache = asked.filled if asked.filled is not None else self._caches.empty(asked.need)
            keywords = {keyword: cache, "use_cache": True, **self._fixed}
            for _ in range(asked.budget):
                logits = model(tokens, **keywords).logits
                tokens = logits[:, -1].argmax(-1, keepdim=True)
                yield tokens

    def _without_cache(self, asked: Asked) -> Tokens:
        """Yield tokens, computing every position again at each step."""
        torch, model = import_torch(), self._model
        keywords = {"use_cache": False, **self._fixed}
        length = len(asked.prompt[0])
        with torch.inference_mode(), hf_attention.forced(self._attention):
            # Room for prompt and output at once; each step reads a longer part of it.
            context = torch.empty(
                (len(asked.prompt), length + asked.budget), dtype=torch.int64, device=model.device
            )
            context[:, :length] = torch.tensor(asked.prompt, device=model.device)
            for end in range(length, length + asked.budget):
                logits = model(context[:, :end], **keywords).logits
                tokens = logits[:, -1].argmax(-1, keepdim=True)
                context[:, end : end + 1] = tokens
                yield tokens
