"""The rehearsal: the real engine and the real program against simulated clouds, without credentials or cost.

Nothing here talks to a network, and nothing outside it imports it.
"""
