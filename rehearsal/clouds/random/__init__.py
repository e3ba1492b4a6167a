"""The simulated `random` provider: passwords, which live in the state alone."""
