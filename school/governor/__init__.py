"""The governor: knows by counting, without a model, when a session is stuck, and tells it so.

``Governor(settings, table=...).listen(hooks)``; see ``governor.py`` for what it answers and what it exposes, ``signals.py``
for what is counted, ``terms.py`` for its settings, ``telling.py`` for what ``/governor`` says. It never blocks a call, calls
nothing and opens no connection. Errors end in the hooks, where advisers are fail-open.
"""

from school.governor.governor import UNTOLD, Governor
from school.governor.signals import Thresholds
from school.governor.terms import Terms, read

__all__ = ["UNTOLD", "Governor", "Terms", "Thresholds", "read"]
