"""Refusals of Google Cloud: their shape and their sources.

Wording that Google does not publish is marked "unverified".
"""

from __future__ import annotations

from rehearsal.clouds.kind import Refusal


def bad(message: str, source: str) -> Refusal:
    """Return the refusal of a request that can never succeed."""
    return Refusal("400 badRequest", message, source)


def invalid(field: str, value: object, message: str, source: str) -> Refusal:
    """Return Compute Engine's refusal of one field's value."""
    return Refusal("400 invalid", f"Invalid value for field '{field}': '{value}'. {message}", source)


UNVERIFIED = "unverified, 2026-11"

PROVIDER = "hashicorp/terraform-provider-google-beta, 93c65b2d, 2026-08-21"
PROVIDER_CLUSTER = f"{PROVIDER}: services/container/resource_container_cluster.go"
PROVIDER_POOL = f"{PROVIDER}: services/container/resource_container_node_pool.go"
PROVIDER_NODE = f"{PROVIDER}: services/container/node_config.go"
PROVIDER_COMPUTE = f"{PROVIDER}: services/compute"
PROVIDER_ACCOUNT = f"{PROVIDER}: services/resourcemanager/resource_google_service_account.go"
PROVIDER_IAM = f"{PROVIDER}: tpgiamresource/resource_iam_member.go"

TOOLKIT = "GoogleCloudPlatform/cluster-toolkit: gke-node-pool preconditions, 10470803, 2026-06-25"
TOOLKIT_RDMA = "GoogleCloudPlatform/cluster-toolkit: gpu-rdma-vpc and PR #3987, 10470803, 2026-06-25"
IMAGE_TESTS = "GoogleCloudPlatform/cloud-image-tests PR #537, read 2026-08"
QUEUED = "GKE docs provisioningrequest, 2026-04-08"
QUEUED_AFFINITY = "hashicorp/terraform-provider-google #18341, read 2026-08"
DWS = "GKE docs concepts/dws, read 2026-08"
UPGRADES = "GKE docs node-pool-upgrade-strategies, 2026-04-13"
DRANET = "GKE docs allocate-network-resources-dra, 2026-04-10"
MULTI_NETWORK = "GKE docs multi-network support for Pods, read 2026-08"
MACHINES = "GKE docs gke-ai-hypercompute-custom, 2026-04-06"
RDMA_PROFILE = "Google Cloud docs rdma-network-profiles and firewall-for-roce, read 2026-08"
VPC = f"Google Cloud VPC docs, subnets and MTU; wording {UNVERIFIED}"
IN_USE = "hashicorp/terraform-provider-google #41 and genevieve/leftovers #6, read 2026-11"
OVERLAP = "hashicorp/terraform-provider-google #21181, read 2026-11"
NOT_VALID_SUBNET = "hashicorp/terraform-provider-google #7895, read 2026-11"
NETWORK_POLICY = "hashicorp/terraform-provider-google #11334, read 2026-11"
NAT_IN_USE = "hashicorp/terraform-provider-google #28572, read 2026-11"
AUTO_MODE = "cloudfoundry/bosh-google-cpi-release #262, read 2026-11"
NO_CHANNEL = "terraform-google-modules/terraform-google-kubernetes-engine PR #682, read 2026-11"
NO_IDENTITY_POOL = "terraform-google-modules/terraform-google-kubernetes-engine #916, read 2026-11"
NO_RANGE = "fabianlee/gcp-gke-clusters-ingress #2, read 2026-11"
SAME_RANGE = "gruntwork-io/terraform-google-network PR #60, read 2026-11"
NO_NETWORK = "gitpod-io/gitpod-gke-guide #21, read 2026-11"
NO_VERSION = "GoogleCloudPlatform/gke-networking-demos #37, read 2026-11"
NO_ACCOUNT = "midl-dev/tezos-on-gke #45 and terraform-provider-google #17737, read 2026-11"
