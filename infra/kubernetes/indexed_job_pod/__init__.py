"""What every pod of the Indexed Job runs: pods 0…n-1 of one Job make a Ray cluster, run the entry point, and end.

These files lie in a ConfigMap and need Python 3.11 and Ray, nothing else of this project. They are Python and not a
shell script: every Ray image has it, it can be type-checked and tested in parts, and proofs, deadlines and processes by
id have no clean form in a shell. `python -m indexed_job_pod --help` shows the options.

Pod 0 is the head. It starts Ray and opens a control port. Every other pod looks for that port by the head's stable host
name, and where that fails by the file `<folder>/rdma-ray/<UID of the Job>.json` on shared storage; it joins Ray only
after a handshake in which both sides prove that they know the Job's UID and Ray's token, without sending the token. An
address alone is never believed: names and files may be stale, and addresses are given out again. When all pods have
joined and Ray counts their nodes as alive, the entry point runs on the head (`--everywhere`: on every pod, as torchrun
wants it), and the head sends its exit code to the others, which end with it too.

Generations do not mix. A head is one generation, with a random id that is part of every proof. A pod that is lost or
restarts ends its generation: the head stops the entry point, and everybody ends with `exits.PEER_LOST`. A cluster that
heals itself would be another one to the entry point, whose collectives would hang. So the Job fails as a whole; to try
again, run a new Job, which goes on from its own checkpoints.
"""
