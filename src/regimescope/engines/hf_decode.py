"""The decode loop for transformers: one prompt in, tokens out one at a time. Layer: ``engines``.

Both loops are greedy, ignore the end-of-sequence token, and hand tokens over on the device. Whoever
takes them decides when to wait for them: ``tolist`` brings a token to the host and so waits for
everything the device was given before it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from regimescope.engines.hf_device import import_torch
from regimescope.errors import CapabilityError

# The cache argument of ``forward``: renamed in transformers 5.24, where the old name warns.
CACHE_KEYWORDS = ("cache", "past_key_values")

# One tensor per step, on the device, shape (sequences, 1).
Tokens = Iterator[Any]


class Decoder:
    """A model together with the way it wants to be called, looked up once."""

    def __init__(self, model: Any) -> None:
        """Read the signature of the model's ``forward``."""
        from transformers import DynamicCache

        self._model = model
        self._new_cache = DynamicCache
        parameters = inspect.signature(model.forward).parameters
        self._cache_keyword = next((name for name in CACHE_KEYWORDS if name in parameters), None)
        # The head is applied to the last position only, which is all that greedy decoding needs.
        # A model that does not know this keyword computes the logits of every position.
        self._fixed = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}

    def with_cache(self, prompt: Sequence[Sequence[int]], budget: int) -> Tokens:
        """Yield ``budget`` tokens per sequence, keeping keys and values between steps.

        The cache starts empty and grows by one position per step.

        Args:
            prompt: Token ids, one row of equal length per sequence.
            budget: Tokens to produce per sequence, 1 or more.

        Raises:
            CapabilityError: The model takes no cache.
        """
        torch, model = import_torch(), self._model
        if self._cache_keyword is None:
            raise CapabilityError(
                f"{type(model).__name__} takes no KV cache.",
                remedy="Measure it with kv_cache 'off'.",
            )
        # Held across the yields, because entering it anew would add about 1 % to a step of 2 ms.
        with torch.inference_mode():
            tokens = torch.tensor(prompt, device=model.device)
            cache = self._new_cache(config=model.config)
            keywords = {self._cache_keyword: cache, "use_cache": True, **self._fixed}
            for _ in range(budget):
                logits = model(tokens, **keywords).logits
                tokens = logits[:, -1].argmax(-1, keepdim=True)
                yield tokens

    def without_cache(self, prompt: Sequence[Sequence[int]], budget: int) -> Tokens:
        """Yield ``budget`` tokens per sequence, computing every position again at each step.

        Args:
            prompt: Token ids, one row of equal length per sequence.
            budget: Tokens to produce per sequence, 1 or more.
        """
        torch, model = import_torch(), self._model
        keywords = {"use_cache": False, **self._fixed}
        length = len(prompt[0])
        with torch.inference_mode():
            # Room for prompt and output at once; each step reads a longer part of it.
            context = torch.empty(
                (len(prompt), length + budget), dtype=torch.int64, device=model.device
            )
            context[:, :length] = torch.tensor(prompt, device=model.device)
            for end in range(length, length + budget):
                logits = model(context[:, :end], **keywords).logits
                tokens = logits[:, -1].argmax(-1, keepdim=True)
                context[:, end : end + 1] = tokens
                yield tokens
