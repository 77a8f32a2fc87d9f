"""The operating system as this project uses it, knowing no word of the school.

Import the modules (``from school.system import files``); nothing is re-exported here, so that a program pays
only for what it uses. ``clock``, ``files``, ``locks`` and ``git`` cost no more than the standard library.
"""
