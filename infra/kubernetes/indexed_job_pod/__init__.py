"""The program of every pod of an Indexed Job: pods 0…n-1 of one Job form a Ray cluster, run the entry point, and end.

These files are in a ConfigMap and need Python 3.11 and Ray, nothing else of this project. They are Python and not a
shell script: every Ray image has it, it can be type-checked and unit-tested, and a shell has no clean form of proofs,
deadlines and processes by id. `python -m indexed_job_pod --help` shows the options.

Pod 0 is the head. It starts Ray and opens a control port. Every other pod looks for that port by the head's stable host
name, or else in the file `<folder>/rdma-ray/<UID of the Job>.json` on shared storage. It joins Ray only after a
handshake in which both sides prove that they know the Job's UID and Ray's token, without sending the token. An address
alone is not trusted: names and files may be stale, and addresses are reused. When all pods have joined and Ray reports
their nodes as alive, the entry point runs on the head (`--everywhere`: on every pod, as torchrun needs it), and the
head sends its exit code to the others, which end with it too.

Generations do not mix. A head is one generation, with a random id that is part of every proof. A pod that is lost or
restarts ends its generation: the head stops the entry point, and every pod ends with `exits.PEER_LOST`. A cluster that
healed would be a different one to the entry point, whose collectives would hang. So the Job fails as a whole; to retry,
run a new Job, which resumes from its own checkpoints.
"""
