"""The loop of transformers itself, ``generate``, one token at a time. Layer: ``engines``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from regimescope.engines import hf_attention
from regimescope.engines.hf_cache import CacheMaker
from regimescope.engines.hf_decode import Asked, Tokens
from regimescope.engines.hf_device import import_torch

_END = object()


class _Abandoned(Exception):
    """Nobody wants the rest of a generation."""


class _Handover:
    """A streamer that gives each token away and waits until the next one is wanted."""

    def __init__(self, *, stamped: bool) -> None:
        """Without stamps only the first token is waited for."""
        self.produced: SimpleQueue[Any] = SimpleQueue()
        self.wanted: SimpleQueue[bool] = SimpleQueue()
        self._stamped = stamped
        self._handed = -1  # The first thing a streamer is given is the prompt.

    def put(self, value: Any) -> None:
        """Take what ``generate`` has produced; it is on the host already."""
        self._handed += 1
        if self._handed == 0:
            return
        self.produced.put(value.reshape(-1, 1))
        if (self._stamped or self._handed == 1) and not self.wanted.get():
            raise _Abandoned

    def end(self) -> None:
        """Do nothing: the end is known from the future."""


class GenerateLoop:
    """Decodes through ``generate``, greedily and past any end-of-sequence token.

    ``generate`` does not pause, so it runs in a thread of its own, which stops in the streamer
    after each token until the next is wanted. A gap between two tokens therefore contains two
    changes of thread (tens of microseconds) beside what ``generate`` does at each step: it copies
    the ids so far, asks its stopping rules, and brings tokens and stop flag to the host. The thread
    is kept for the life of the session, because plans of cuDNN belong to a thread (mechanisms,
    section 0.2) and a new one would build them again. On MPS transformers 5.24 runs one step ahead
    of its streamer: the stamp of a token is right, but its successor is under way already.
    """

    def __init__(
        self, model: Any, caches: CacheMaker, attention: hf_attention.Attention = "auto"
    ) -> None:
        """Take over a model; its own settings for generating are dropped.

        They may name penalties, sampling and end-of-sequence tokens, which ``generate`` would
        otherwise fill in for whatever a request leaves open.
        """
        import transformers

        self._model, self._caches, self._attention = model, caches, attention
        self._model.generation_config = transformers.GenerationConfig()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="generate")

    def tokens(self, asked: Asked) -> Tokens:
        """Yield the tokens of a generation, on the host.

        Raises:
            CapabilityError: The model takes no cache, or none of this kind.
        """
        handover = _Handover(stamped=asked.stamped)
        future = self._thread.submit(self._run, asked, handover)
        try:
            while (value := handover.produced.get()) is not _END:
                yield value
                handover.wanted.put(True)
        finally:
            handover.wanted.put(False)
            error = future.exception()
        if error is not None:
            raise error

    def close(self) -> None:
        """End the thread and let go of the model."""
        self._thread.shutdown()
        self._caches.release()
        self._model = None

    def _run(self, asked: Asked, handover: _Handover) -> None:
        """Run ``generate`` to its end, or until nobody wants the rest."""
        try:
            self._generate(asked, handover)
        except _Abandoned:
            pass
        finally:
            handover.produced.put(_END)

    def _generate(self, asked: Asked, handover: _Handover) -> None:
        """Call ``generate``.

        It is given the whole sequence, made-up ids for the filled positions included, and itself
        leaves out what the cache holds. What is compiled is the model's own ``forward``, so that
        both loops compile the same.
        """
        import transformers

        torch, model = import_torch(), self._model
        with torch.inference_mode(), hf_attention.forced(self._attention):
            prompt = torch.tensor(asked.prompt, device=model.device)
            ids = torch.nn.functional.pad(prompt, (asked.need.depth, 0))
            keywords: dict[str, Any] = {}
            if asked.cached:
                empty = asked.filled is None
                cache = self._caches.empty(asked.need) if empty else asked.filled
                keywords[self._caches.keyword] = cache
            config = transformers.GenerationConfig(
                do_sample=False,
                max_new_tokens=asked.budget,
                min_new_tokens=asked.budget,
                use_cache=asked.cached,
                disable_compile=True,
            )
            model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                generation_config=config,
                streamer=handover,
                **keywords,
            )
