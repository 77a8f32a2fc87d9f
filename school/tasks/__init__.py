"""What the user asks for (``taskfile``), and how far each task has come (``ledger``)."""

from school.tasks.ledger import Attempt, TaskLedger, TaskRecord
from school.tasks.taskfile import (
    Accept,
    Task,
    TaskFile,
    id_problem,
    load_tasks,
    refuse_unjudgeable,
    single_task,
    slug,
)

__all__ = [
    "Accept",
    "Attempt",
    "Task",
    "TaskFile",
    "TaskLedger",
    "TaskRecord",
    "id_problem",
    "load_tasks",
    "refuse_unjudgeable",
    "single_task",
    "slug",
]
