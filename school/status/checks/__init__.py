"""The invariants that ``conductor.py check`` proves over a state directory, by what they look at.

``records`` looks at one bookbag at a time, ``journals`` at scores, deliveries and task records, ``leftovers`` at
what should have gone with its owner. ``world`` is what they look at. Each invariant is a function from it to the
``Violation``s that it finds; ``school.status.check`` runs them and names them.
"""
