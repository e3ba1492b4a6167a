"""Rehearsals: the real engine and the real program against simulated clouds, without credentials or cost.

Nothing in this package uses a network, and no other package imports it.
"""
