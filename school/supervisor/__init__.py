"""The Principal at work: one run over one repository, from a list of tasks to delivered branches.

``states`` says what is due for a bead in each state, ``rounds`` which task is ready, ``restart`` when a teacher may
start again, ``handover`` when a wait has been long enough: pure, and the whole of the deciding. ``leaves``,
``teachers`` and ``closing`` are the hands. ``run`` reads the disk, decides by those tables, acts, and waits.
Nothing here is remembered that the disk does not hold; a run that is killed is taken up by the next one.
"""
