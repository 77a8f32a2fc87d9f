"""The mechanism behind ``bookbag``, which is its public face: callers go there.

``moves`` says what states there are and who may move a record where; ``derive`` what follows from a record and what
is wrong with it; ``store`` is one record as a file, with its lock; ``shelf`` is all that are live, with their flags.
Importing this package loads nothing of it.
"""
