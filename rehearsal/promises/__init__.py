"""What a stack promises, checked on the graph that the real engine registered: one promise, one function.

A promise reads inputs and dependencies only; what an API would refuse stands in the simulated clouds' rules.
"""
