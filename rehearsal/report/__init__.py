"""What a finished rehearsal says: computed from the deployment and the phases alone, for people and for machines.

Nothing here runs an engine or asks a cloud.
"""
