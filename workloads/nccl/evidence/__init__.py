"""What shows how the data really travelled: NCCL's own log, the NICs' counters, versions and topology."""
