"""The simulated clouds: what they remember, compute, refuse, change behind one's back, and how they can fail.

They serve the engine's provider protocol. They do not run pods, and they know only the kinds that the stacks make.
"""
