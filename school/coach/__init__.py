"""The coach: a second model that reads a short ledger of a session and says what it would change. An adviser, fail-open.

A host makes one and lets it listen::

    terms = read_terms(table)                       # [coach]; ConfigError names a key that is wrong
    coach = Coach(terms, asks, folder=worktree, settings=settings)
    coach.listen(hooks)                             # Hermes' hooks; every answer of the coach's comes through them
    for tool in coach.tools(): register(tool.name, tool.schema, tool.handler)
    coach.command("set active_timing both")         # what a user types behind /coach
    coach.close()

``asks`` is the model, as a callable that answers one call; ``terms.model``, ``base_url`` and ``api_key_env`` say which one the
host should make it from, and None means that there is none: then only the ledger is kept. A leaf has one session, so it also
gives ``session_id`` (its bead), ``primary_model`` (what its agent runs on), ``base`` (the commit that the work began at) and ``task``
(what was asked for: what its agent is sent is more than that, and later messages are reminders). It listens with
``verify=False`` and asks ``coach.gate(turn_end)`` at each end of a turn: the message of a further turn, or ''. ``guidance()``
is what the bookbag keeps: what was advised, delivered, held, followed, skipped, and what went wrong.

Other hosts may give ``inject`` (say a text to the agent now; False when that is not possible), ``post`` (be told of each card)
and ``adjustable=True`` (``/coach set`` is kept under the state directory and lies over the configuration).

Not promised: that a hung model's thread ends (it is abandoned), or that advice is right. What is kept lies in
``school/coach/``: one file a session, behind one lock (``state``). Errors: only ``read_terms`` and the constructor raise into
the host; the rest happens behind ``school.hooks``, where whatever is raised is recorded and changes nothing.
"""

from __future__ import annotations

from school.coach.coach import Coach
from school.coach.terms import CoachTerms, read_terms

__all__ = ["Coach", "CoachTerms", "read_terms"]
