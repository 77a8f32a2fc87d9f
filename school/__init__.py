"""The mechanism behind conductor, teacher and leaf; the five modules at the root are built from it."""
