"""Names of Kueue's kinds, as type tokens."""

from __future__ import annotations

GROUP = "kueue.x-k8s.io"
ADMISSION_CHECK = f"kubernetes:{GROUP}/v1beta2:AdmissionCheck"
CLUSTER_QUEUE = f"kubernetes:{GROUP}/v1beta2:ClusterQueue"
LOCAL_QUEUE = f"kubernetes:{GROUP}/v1beta2:LocalQueue"
PROVISIONING = f"kubernetes:{GROUP}/v1beta2:ProvisioningRequestConfig"
RESOURCE_FLAVOR = f"kubernetes:{GROUP}/v1beta2:ResourceFlavor"
TOPOLOGY = f"kubernetes:{GROUP}/v1beta2:Topology"
