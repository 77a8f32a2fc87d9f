"""A change as data, and as the text that reviewers read.

``Change`` is the change between two commits of a repository of ours: files, lines, patch. ``evidence_of_commits`` and
``evidence_of_folder`` make the evidence block that the coach reads (see ``evidence``), ``listing_of_commits`` its header, which
stands above the parts of a change in what a teacher's model reads. ``head_of`` is the commit
that is checked out in a folder.
"""

from __future__ import annotations

from school.changes.change import READ_BYTES_MAX, Change, ChangedFile, Coverage
from school.changes.evidence import (
    EVIDENCE_CHARS_MAX,
    Evidence,
    evidence_of_commits,
    evidence_of_folder,
    listing_of_commits,
)
from school.changes.folder import head_of, project_of

__all__ = [
    "EVIDENCE_CHARS_MAX",
    "READ_BYTES_MAX",
    "Change",
    "ChangedFile",
    "Coverage",
    "Evidence",
    "evidence_of_commits",
    "evidence_of_folder",
    "head_of",
    "listing_of_commits",
    "project_of",
]
