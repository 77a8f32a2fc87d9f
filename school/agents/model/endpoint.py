"""One request to a model's endpoint: which provider, how long, how often again, and what a failure means.

``connect(spec, environ)`` makes an ``Endpoint`` inside a running event loop; ``request(messages, …)`` sends one request
and answers with the library's ModelResponse or raises ``CallFailed``, which says in our words why: ``timeout``,
``quota`` (with ``retry_at``), ``unavailable``, ``refused``, ``limit`` or ``not_installed``. Rate limits, server errors
and connections that fail are tried again, ``TRIES`` times in all, waiting as the endpoint asks or with back-off, and
never beyond the deadline; a reset further off than ``patience_s`` is ``quota`` at once. Each failure of a try is told
to ``on_error``. ``aclose`` at the end.

``spec.model`` is ``provider:name``. A name without a known provider means an OpenAI-compatible endpoint at
``spec.base_url``, and so does ``openai:name`` with a base_url (chat completions, which all such endpoints have).
``spec.api_key_env`` names the variable that holds the key; where it is empty the provider's own variable is read.
An answer of more than ``ANSWER_BYTES_MAX`` on the wire is cut off: no endpoint can fill our memory.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from school.agents.model.resets import seconds_until
from school.contracts import AgentSpec, bounded
from school.system import clock

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model
    from pydantic_ai.tools import ToolDefinition

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
DETAIL_BYTES_MAX: Final = 1000
ANTHROPIC_TOKENS: Final = 16_000
TRIES: Final = 4
FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 20.0
# What a call may still take when it is begun; less is no call at all.
LEAST_S: Final = 0.05
KEYS: Final = {
    "openai": "OPENAI_API_KEY",
    "openai-chat": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
}
_BARE: Final = ""
# What the library raises over an answer of another shape than it knows; what it sends is our own and well formed.
ODD_SHAPES: Final = (ValueError, TypeError, LookupError, AttributeError, AssertionError, RecursionError)
_CONTEXT: Final = re.compile(
    r"context.{0,20}(?:size|length|window)|too many tokens|prompt is too long|maximum.{0,20}tokens",
    re.IGNORECASE,
)
_TRANSIENT: Final = frozenset({408, 409, 425})


class CallFailed(Exception):  # noqa: N818 - it is not an error of ours but how a call ended
    """Why there is no answer, in our words."""

    def __init__(self, reason: str, detail: str, *, retry_at: str = "", error_type: str = "") -> None:
        super().__init__(detail)
        self.reason = reason
        self.error_type = error_type
        self.detail = detail
        self.retry_at = retry_at


class AnswerTooLargeError(Exception):
    """The endpoint sent more than anybody asked for, or something packed whose size nobody knows."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One try that failed. ``wait_s`` is what the endpoint asked to wait, None where it said nothing."""

    reason: str
    detail: str
    retryable: bool = False
    status_code: int | None = None
    error_type: str = ""
    wait_s: float | None = None
    tried: int = 0


class Endpoint:
    """A model at its endpoint, for one event loop."""

    def __init__(self, model: Model, client: Any, key: str) -> None:  # noqa: ANN401 - the library's HTTP client
        self._model = model
        self._client = client
        self._key = key
        self.first_wait_s = FIRST_WAIT_S
        self.requests = 0

    @property
    def provider(self) -> str:
        return self._model.system

    @property
    def name(self) -> str:
        return self._model.model_name

    @property
    def base_url(self) -> str:
        return self._model.base_url or ""

    def price_known(self) -> bool:
        """Whether what a call costs can be reckoned."""
        from pydantic_ai.messages import ModelResponse
        from pydantic_ai.usage import RequestUsage

        response = ModelResponse(
            parts=[],
            usage=RequestUsage(input_tokens=1, output_tokens=1),
            model_name=self.name,
            provider_name=self.provider,
            provider_url=self.base_url,
        )
        try:
            response.cost()
        except (LookupError, ValueError):
            return False
        return True

    async def aclose(self) -> None:
        await self._client.aclose()

    async def request(
        self,
        messages: Sequence[ModelMessage],
        *,
        deadline: float,
        patience_s: float,
        tools: Sequence[ToolDefinition] = (),
        max_tokens: int | None = None,
        attempt_s: float = 600.0,
        on_error: Callable[[Failure], None] | None = None,
    ) -> ModelResponse:
        """One answer to *messages* before *deadline* (of ``time.monotonic``); CallFailed if there is none."""
        for tried in range(1, TRIES + 1):
            left = deadline - time.monotonic()
            if left < LEAST_S:
                raise CallFailed("timeout", f"{self.name} did not answer in time")
            failure = await self._attempt(messages, tools, max_tokens, min(left, attempt_s), tried)
            if not isinstance(failure, Failure):
                return failure
            if on_error is not None:
                on_error(failure)
            wait_s = _wait(failure, tried, self.first_wait_s)
            if not failure.retryable or tried == TRIES or wait_s > patience_s:
                raise _given_up(failure)
            if time.monotonic() + wait_s + LEAST_S > deadline:
                raise _given_up(failure)
            await asyncio.sleep(wait_s)
        raise AssertionError("the last try returns or raises")

    async def _attempt(
        self,
        messages: Sequence[ModelMessage],
        tools: Sequence[ToolDefinition],
        max_tokens: int | None,
        within_s: float,
        tried: int,
    ) -> ModelResponse | Failure:
        from pydantic_ai.direct import model_request
        from pydantic_ai.exceptions import AgentRunError, UserError
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.settings import ModelSettings

        settings = ModelSettings(max_retries=0, timeout=within_s, request_timeout=within_s)
        # Anthropic wants a number; elsewhere one that is larger than a small model's context would be refused.
        limit = max_tokens or (ANTHROPIC_TOKENS if self.provider == "anthropic" else None)
        if limit is not None:
            settings["max_tokens"] = limit
        self.requests += 1
        try:
            response = await model_request(
                self._model,
                messages,
                model_settings=settings,
                model_request_parameters=ModelRequestParameters(function_tools=list(tools)),
            )
        except (AgentRunError, UserError, AnswerTooLargeError, *ODD_SHAPES) as error:
            return self._understood(error, within_s, tried)
        if _broke_off(response):
            return Failure("unavailable", f"{self.name} broke off its answer", retryable=True, tried=tried)
        return response

    def _understood(self, error: Exception, within_s: float, tried: int) -> Failure:
        """What *error* means; the key never stands in it."""
        from pydantic_ai import exceptions as library

        too_large = _cause(error, AnswerTooLargeError)
        if too_large is not None:
            return Failure(
                "limit", f"{self.name}: {too_large}", error_type="AnswerTooLargeError", tried=tried
            )
        said = f"{self.name}: {self._shown(str(error))}"
        status = getattr(error, "status_code", None)
        headers = getattr(error, "headers", None) or {}
        wait_s = seconds_until(headers, getattr(error, "body", None), clock.parse(clock.now()))
        if isinstance(error, ODD_SHAPES):
            said = f"{self.name}: its answer is not as the format has it ({self._shown(str(error))})"
        if isinstance(error, library.ModelRequestTimeout):
            said = f"{self.name} did not answer in {within_s:.3g} s"
        reason, retryable = _meaning(error, status)
        return Failure(reason, said, retryable, status, type(error).__name__, wait_s, tried)

    def _shown(self, text: str) -> str:
        hidden = text.replace(self._key, "[key]") if len(self._key) >= 4 else text  # noqa: PLR2004
        return bounded(" ".join(hidden.split()), DETAIL_BYTES_MAX)


def _broke_off(response: ModelResponse) -> bool:
    """Whether the endpoint says that it failed in the middle; the library knows that word of some providers only."""
    said = (response.provider_details or {}).get("finish_reason")
    return "error" in (response.finish_reason, said)


def _meaning(error: Exception, status: int | None) -> tuple[str, bool]:
    """The reason that *error* is, and whether trying again may help."""
    from pydantic_ai import exceptions as library

    if isinstance(error, library.ModelRequestRejectedError):
        if status in _TRANSIENT:
            return "unavailable", True
        # Endpoints that are none of the library's own say it each in their way.
        if _CONTEXT.search(str(error)):
            return "limit", False
    meanings: list[tuple[type[Exception], str, bool]] = [
        (library.ModelQuotaExceededError, "quota", False),
        (library.ModelRateLimitError, "quota", True),
        (library.ModelRequestTimeout, "timeout", False),
        (library.ModelContextWindowExceededError, "limit", False),
        (library.ContentFilterError, "refused", False),
        (library.ModelRequestRejectedError, "refused", False),
        (library.UserError, "refused", False),
    ]
    return next(
        ((reason, retryable) for kind, reason, retryable in meanings if isinstance(error, kind)),
        ("unavailable", True),
    )


def _wait(failure: Failure, tried: int, first_s: float) -> float:
    """How long before the next try: as asked, else doubling with some chance in it."""
    if failure.wait_s is not None:
        return failure.wait_s
    doubled: float = min(LONGEST_WAIT_S, first_s * 2 ** (tried - 1))
    return doubled * (0.75 + random.random() / 2)  # noqa: S311 - spreads retries, keeps no secret


def _given_up(failure: Failure) -> CallFailed:
    retry_at = ""
    if failure.reason == "quota" and failure.wait_s is not None:
        moment = clock.parse(clock.now()) + timedelta(seconds=failure.wait_s)
        retry_at = moment.isoformat(timespec="seconds")
    again = f" (tried {failure.tried} times)" if failure.tried > 1 else ""
    until = f"; it takes calls again at {retry_at}" if retry_at else ""
    return CallFailed(
        failure.reason, f"{failure.detail}{again}{until}", retry_at=retry_at, error_type=failure.error_type
    )


def _cause(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    """The *kind* of error behind *error*, however deep."""
    for _ in range(10):
        if error is None or isinstance(error, kind):
            return error
        error = error.__cause__ or error.__context__
    return None


# --- which model -------------------------------------------------------------------------------------------


def connect(spec: AgentSpec, environ: Mapping[str, str], *, answer_bytes: int = ANSWER_BYTES_MAX) -> Endpoint:
    """The endpoint that *spec* describes; CallFailed ``not_installed`` where it cannot be had."""
    try:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import create_async_httpx2_client
    except ImportError as error:
        raise CallFailed("not_installed", f"a model needs the extra schoolhouse[model]: {error}") from error
    client = create_async_httpx2_client()
    client.headers["Accept-Encoding"] = "identity"
    client.event_hooks = {"response": [_Bound(answer_bytes)]}
    provider, name = provider_of(spec.model, with_url=bool(spec.base_url))
    key = _key(spec, environ, provider)
    try:
        return Endpoint(_model(spec, provider, name, key, client), client, key)
    except (UserError, ImportError, ValueError, TypeError) as error:
        raise CallFailed("not_installed", f"{spec.name}: {spec.model}: {error}") from error


def provider_of(model: str, *, with_url: bool) -> tuple[str, str]:
    """Provider and name; '' for a name alone, which may hold a colon itself (``qwen:7b``)."""
    from pydantic_ai.providers import infer_provider_class

    provider, colon, name = model.partition(":")
    if not colon:
        if not with_url:
            raise CallFailed(
                "not_installed", f'{model!r} names no provider: write "provider:name" or set base_url'
            )
        return _BARE, model
    try:
        infer_provider_class(provider)
    except ValueError as error:
        if with_url:
            return _BARE, model
        raise CallFailed("not_installed", f"{model!r}: no provider is called {provider!r}") from error
    except ImportError as error:
        raise CallFailed("not_installed", f"{model!r}: {error}") from error
    return provider, name


def _key(spec: AgentSpec, environ: Mapping[str, str], provider: str) -> str:
    """The key; '' where none is due. A variable that is named and not set is said before anything is sent."""
    named = spec.api_key_env or KEYS.get(provider, "")
    key = environ.get(named, "").strip() if named else ""
    if not key and named and (spec.api_key_env or not spec.base_url):
        raise CallFailed(
            "not_installed", f"{spec.name}: the variable {named}, which holds its key, is not set"
        )
    return key


def _model(spec: AgentSpec, provider: str, name: str, key: str, client: Any) -> Model:  # noqa: ANN401
    """The library's model for this provider and endpoint."""
    if provider == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        url = spec.base_url or None
        return AnthropicModel(
            name, provider=AnthropicProvider(api_key=key or "none", base_url=url, http_client=client)
        )
    if provider == _BARE or (spec.base_url and provider in ("openai", "openai-chat", "openai-responses")):
        return _openai(spec, provider, name, key, client)
    from pydantic_ai.models import infer_model
    from pydantic_ai.providers import Provider, infer_provider_class

    def make(wanted: str) -> Provider[Any]:
        arguments = {"http_client": client}
        if key:
            arguments["api_key"] = key
        if spec.base_url:
            arguments["base_url"] = spec.base_url
        return infer_provider_class(wanted)(**arguments)

    return infer_model(f"{provider}:{name}", provider_factory=make)


def _openai(spec: AgentSpec, provider: str, name: str, key: str, client: Any) -> Model:  # noqa: ANN401
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    if provider == _BARE:
        return OpenAIChatModel(
            name,
            provider=OpenAICompatibleProvider(
                "endpoint", base_url=spec.base_url, api_key=key or "none", http_client=client
            ),
        )
    known = OpenAIProvider(base_url=spec.base_url, api_key=key or "none", http_client=client)
    if provider == "openai-responses":
        return OpenAIResponsesModel(name, provider=known)
    return OpenAIChatModel(name, provider=known)


# --- how much ----------------------------------------------------------------------------------------------


class _Bound:
    """Called with each response before its body is read: lets no more than so many bytes of it through."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes

    async def __call__(self, response: Any) -> None:  # noqa: ANN401 - the library's response
        # We asked for plain bytes; what is packed may be a thousand times larger than it looks.
        packed = response.headers.get("content-encoding", "identity").lower()
        if packed not in ("", "identity"):
            raise AnswerTooLargeError(f"its answer is packed ({packed[:20]}), which was not asked for")
        response.stream = _bounded_stream(response.stream, self.limit_bytes)


def _bounded_stream(stream: Any, limit_bytes: int) -> Any:  # noqa: ANN401 - the library's streams
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            total = 0
            async for chunk in stream:
                total += len(chunk)
                if total > limit_bytes:
                    raise AnswerTooLargeError(f"its answer is longer than {limit_bytes} bytes")
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()
