"""The advisers in a real Hermes: ``register(ctx)`` is what it calls once when it loads the plugin.

Each import, build and registration is a step of its own (``Hooks.attempt``): a host without ``register_tool``, with a hook of
another name or with a coach that cannot be built still gets the rest, and what failed is a problem that is kept. Cleaning up
is registered first, whatever becomes of the rest: at the interpreter's end the governor writes the lines of sessions whose
end was never told, and the coach ends its worker. The governor and the coach have hooks of their own, so no fault of the
one leaves the other out.

How it went is in ``school/governor/hermes-plugin.state`` of the Hermes home: what is registered, which hooks were heard and how
often, every problem; ``conductor.py hermes status`` shows it. Settings come from the environment, from
``escalation-governor.json`` and from ``school.toml`` of the Hermes home. A bad variable is a problem here and ignored, since a
plugin must not keep its host from starting. Errors: none.
"""

from __future__ import annotations

from typing import Any

from school.hermes.plugin_host import Plugin

__all__ = ["Plugin", "register"]


def register(ctx: Any) -> Plugin:  # noqa: ANN401 - Hermes' context, which is Hermes' to define
    """Register everything that this host knows to take."""
    plugin = Plugin(ctx)
    plugin.register()
    return plugin
