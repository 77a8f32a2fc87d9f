"""Agents of kind ``acp``: any agent that speaks the Agent Client Protocol on its standard streams.

``run`` leads the session, ``client`` answers what the agent asks of us, ``calls`` makes events of the tool calls that it tells
of, ``lines`` bounds what it may write. What an agent sends is read as data, leniently: kinds of updates that we do not
know are passed over, since the protocol grows.
"""
