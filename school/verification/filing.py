"""The receipts of a review, entered into the evidence ledger beside the session that they judge.

``file_receipts(bag, worktree, receipts, path)``: each check that a teacher really ran on the clean tree of base or head is
one event of the bead's session, at the teacher's own working tree, with the commit and the tree of its receipt. What ran on
a tree that was spoiled or mixed to see whether a test can fail is no evidence of any commit and is left out, and so is
what was only looked up. The number of events that were made is returned.

The ledger is no part of the verdict: one that cannot be written is logged, and changes nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from school.contracts import Receipt, bounded
from school.errors import MachineError
from school.system import log
from school.verification.classify import kind_of
from school.verification.evidence import COMMAND_BYTES, SUMMARY_BYTES, Ledger

_ON_A_CLEAN_TREE: Final = re.compile(r"verification|criterion .+ at (?:base|head)", re.DOTALL)
_STATUS: Final = {"passed": "passed", "failed": "failed", "timed_out": "failed"}
_TIMED_OUT: Final = 124

_log = log.get("verification.filing")


def file_receipts(bag: Mapping[str, Any], worktree: Path, receipts: Iterable[Receipt], path: Path) -> int:
    """Enter *receipts* of the review of *bag*, base's before head's."""
    ran = [receipt for receipt in receipts if _counts(bag, receipt)]
    ran.sort(key=lambda receipt: receipt.at)
    if not ran:
        return 0
    try:
        with Ledger(path) as ledger:
            for receipt in ran:
                ledger.enter(str(bag["bead"]), worktree, **_event(receipt))
    except MachineError as error:
        _log.warning("receipts.unfiled", bead=bag["bead"], why=str(error))
        return 0
    return len(ran)


def _counts(bag: Mapping[str, Any], receipt: Receipt) -> bool:
    return (
        _ON_A_CLEAN_TREE.fullmatch(receipt.check) is not None
        and receipt.outcome in _STATUS
        and not receipt.cached
        and bool(receipt.argv and receipt.tree)
        and receipt.commit == bag.get(f"{receipt.at}_commit")
    )


def _event(receipt: Receipt) -> dict[str, str | int]:
    command = bounded(shlex.join(receipt.argv), COMMAND_BYTES)
    code = receipt.exit_code
    return {
        "command": command,
        "canonical_command": command,
        "kind": kind_of(receipt.argv),
        "scope": receipt.scope,
        "status": _STATUS[receipt.outcome],
        "exit_code": _TIMED_OUT if code is None else code,
        "commit": receipt.commit,
        "tree": receipt.tree,
        "output_summary": bounded(receipt.output, SUMMARY_BYTES),
    }
