"""The report of a run as a page, a picture and JSON, and the comparison of two runs. Client side only."""
