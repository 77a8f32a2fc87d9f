"""What the disk says, for people and programs: list, show, status, leaderboard, check, doctor.

Each document is plain JSON values as the contract spells them; ``render`` puts it on a screen. ``list``, ``show``
and ``status`` only read, and load neither models nor git nor rich; ``check`` and ``doctor`` load what they need.
Importing this package loads nothing of it.
"""
