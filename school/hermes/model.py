"""The coach's model in a Hermes: an endpoint of its own, or the host's.

``HostModel(ctx, model, base_url, api_key_env)`` answers one call as ``school.contracts.Asks`` says. With a *base_url* it asks
that endpoint (chat completions, also where the model is written ``openai:name``), by the client that Hermes itself is made with;
without one Hermes asks, with the user's own
provider and key, which it grants where ``plugins.entries.schoolhouse.llm`` allows the model. What the clients are known to
raise becomes the reason of an Answer. Errors: whatever else they raise; who asks waits with patience.
"""

from __future__ import annotations

import os
from typing import Any, Final

from school.contracts import Answer

DETAIL_CHARS_MAX: Final = 500
_REASONS: Final = {
    "APITimeoutError": "timeout",
    "TimeoutError": "timeout",
    "RateLimitError": "quota",
    "PluginLlmTrustError": "refused",
    "AuthenticationError": "refused",
    "PermissionDeniedError": "refused",
    "BadRequestError": "refused",
}


class HostModel:
    """See the module."""

    def __init__(self, ctx: Any, model: str, base_url: str, api_key_env: str) -> None:  # noqa: ANN401
        self.model = model
        self._name = model.removeprefix("openai:")
        self._ctx = ctx
        self._base_url = base_url
        self._api_key_env = api_key_env

    def __call__(self, system: str, prompt: str, *, timeout_s: float) -> Answer:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
        if self._base_url:
            return self._ask_endpoint(messages, timeout_s)
        try:
            return self._ask_host(messages, timeout_s)
        except (OSError, RuntimeError, ValueError) as cause:
            return self._none(cause)

    def _none(self, cause: Exception) -> Answer:
        name = type(cause).__name__
        reason = _REASONS.get(name, "unavailable")
        return Answer(model=self.model, reason=reason, detail=f"{name}: {cause}"[:DETAIL_CHARS_MAX])

    def _ask_endpoint(self, messages: list[dict[str, str]], timeout_s: float) -> Answer:
        from openai import OpenAI, OpenAIError

        key = os.environ.get(self._api_key_env, "") if self._api_key_env else ""
        with OpenAI(
            base_url=self._base_url, api_key=key or "none", timeout=timeout_s, max_retries=0
        ) as client:
            try:
                said: Any = client.chat.completions.create(model=self._name, messages=messages)  # type: ignore[arg-type]
            except OpenAIError as cause:
                return self._none(cause)
        if not said.choices:
            return Answer(model=self.model, reason="unavailable", detail="an answer without a choice")
        choice = said.choices[0]
        usage = {
            "requests": 1,
            "input_tokens": getattr(said.usage, "prompt_tokens", 0) or 0,
            "output_tokens": getattr(said.usage, "completion_tokens", 0) or 0,
            "cost_usd": None,
        }
        cut = "cut" if choice.finish_reason == "length" else ""
        return Answer(text=choice.message.content or "", model=self.model, reason=cut, usage=usage)

    def _ask_host(self, messages: list[dict[str, str]], timeout_s: float) -> Answer:
        said = self._ctx.llm.complete(messages, model=self._name, timeout=timeout_s, purpose="coach")
        usage = {
            "requests": 1,
            "input_tokens": said.usage.input_tokens,
            "output_tokens": said.usage.output_tokens,
            "cost_usd": said.usage.cost_usd,
        }
        return Answer(text=said.text or "", model=said.model or self.model, usage=usage)
