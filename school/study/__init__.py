"""What stands beside a student's agent: evidence of what it ran, advisers, and the gates at the end of its turns.

Calling sequence, by the leaf, once for each run of an agent::

    with Study(bag, workspace, spec, settings, ...) as study:
        outcome = run_agent(..., hooks=study.hooks, gate=study.gate, cancelled=study.cancelled)
        study.ended(outcome)
    ending = study.ending(decide(...))
    fields = study.fields()

It looks at the files before the agent begins (``evidence``), builds the hooks and gates that the bag's ``advice`` asks
for (``advisers``, ``gates``), and says afterwards where the bead stands because of them: ``blocked`` where the agent
named what keeps it from a check that was due, ``failed`` with reason ``stuck`` where it went on past a governor's packet.

``briefing`` is what a student is given before it begins, ``record`` what the bookbag says of it afterwards. Importing
this package loads nothing of it; ``Study`` is in ``session``.

Nothing here ends an agent's work by failing: a ledger that cannot be used, an adviser that breaks, is a sentence in the
record. Errors: none of its own; what the machine cannot do is an OSError as everywhere.
"""
