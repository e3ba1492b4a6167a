"""Follow a job's log over a connection that may drop."""

from workloads.client.api import follow as follow
