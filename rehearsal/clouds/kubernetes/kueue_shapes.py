"""Type tokens and shapes of Kueue's kinds, version v1beta2, as in its CRDs.

v1beta1 is served, too, and deprecated; it has fields that v1beta2 lacks (a ClusterQueue's `admissionChecks`, `cohort`).
Only Kueue creates Workloads, so they have no shape here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from rehearsal.clouds.kubernetes.sdk_shapes import part
from rehearsal.clouds.kubernetes.shapes import EITHER, INTEGER, TEXT, TEXT_MAP, TEXTS, Shape, listed, one_of, thing

GROUP = "kueue.x-k8s.io"
ADMISSION_CHECK = f"kubernetes:{GROUP}/v1beta2:AdmissionCheck"
CLUSTER_QUEUE = f"kubernetes:{GROUP}/v1beta2:ClusterQueue"
LOCAL_QUEUE = f"kubernetes:{GROUP}/v1beta2:LocalQueue"
PROVISIONING = f"kubernetes:{GROUP}/v1beta2:ProvisioningRequestConfig"
RESOURCE_FLAVOR = f"kubernetes:{GROUP}/v1beta2:ResourceFlavor"
TOPOLOGY = f"kubernetes:{GROUP}/v1beta2:Topology"


KUEUE = "kubernetes-sigs/kueue: config/components/crd/bases, v1beta2, 0.19.2, ff69552e, 2026-08-22"

_STOP = one_of("None", "Hold", "HoldAndDrain")
_FAIR = thing(weight=EITHER)
_SEARCH = one_of("MayStopSearch", "TryNextFlavor")


def _resource_groups() -> Shape:
    quota = thing("name", "nominalQuota", name=TEXT, nominalQuota=EITHER, borrowingLimit=EITHER, lendingLimit=EITHER)
    flavor = thing("name", "resources", name=TEXT, resources=listed(quota))
    return listed(thing("coveredResources", "flavors", coveredResources=TEXTS, flavors=listed(flavor)))


def cluster_queue_spec() -> Shape:
    """ClusterQueue."""
    migration = thing(
        "mode",
        mode=one_of("TryPreferredFlavors", "RetainFirstAdmission"),
        constraints=thing(lastAcceptableFlavorName=TEXT),
    )
    return thing(
        resourceGroups=_resource_groups(),
        cohortName=TEXT,
        queueingStrategy=one_of("StrictFIFO", "BestEffortFIFO"),
        namespaceSelector=part("meta.v1", "LabelSelector"),
        flavorFungibility=thing(
            preference=one_of("BorrowingOverPreemption", "PreemptionOverBorrowing"),
            whenCanBorrow=_SEARCH,
            whenCanPreempt=_SEARCH,
        ),
        preemption=thing(
            borrowWithinCohort=thing(maxPriorityThreshold=INTEGER, policy=one_of("Never", "LowerPriority")),
            reclaimWithinCohort=one_of("Never", "LowerPriority", "Any"),
            withinClusterQueue=one_of("Never", "LowerPriority", "LowerOrNewerEqualPriority"),
        ),
        admissionChecksStrategy=thing(
            "admissionChecks", admissionChecks=listed(thing("name", name=TEXT, onFlavors=TEXTS))
        ),
        stopPolicy=_STOP,
        fairSharing=_FAIR,
        admissionScope=thing(
            "admissionMode", admissionMode=one_of("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing")
        ),
        concurrentAdmissionPolicy=thing("migration", migration=migration),
    )


def cohort_spec() -> Shape:
    """Cohort."""
    return thing(parentName=TEXT, resourceGroups=_resource_groups(), fairSharing=_FAIR)


def local_queue_spec() -> Shape:
    """LocalQueue."""
    return thing(clusterQueue=TEXT, stopPolicy=_STOP, fairSharing=_FAIR)


def resource_flavor_spec() -> Shape:
    """ResourceFlavor."""
    return thing(
        nodeLabels=TEXT_MAP,
        nodeTaints=listed(part("core.v1", "Taint")),
        tolerations=listed(part("core.v1", "Toleration")),
        topologyName=TEXT,
    )


def admission_check_spec() -> Shape:
    """AdmissionCheck."""
    parameters = thing("apiGroup", "kind", "name", apiGroup=TEXT, kind=TEXT, name=TEXT)
    return thing("controllerName", controllerName=TEXT, parameters=parameters)


def provisioning_spec() -> Shape:
    """ProvisioningRequestConfig."""
    update = thing("key", "valueFromProvisioningClassDetail", key=TEXT, valueFromProvisioningClassDetail=TEXT)
    return thing(
        "provisioningClassName",
        provisioningClassName=TEXT,
        parameters=TEXT_MAP,
        managedResources=TEXTS,
        retryStrategy=thing(backoffLimitCount=INTEGER, backoffBaseSeconds=INTEGER, backoffMaxSeconds=INTEGER),
        podSetUpdates=thing(nodeSelector=listed(update)),
        podSetMergePolicy=one_of("IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"),
    )


def topology_spec() -> Shape:
    """Topology."""
    return thing("levels", levels=listed(thing("nodeLabel", nodeLabel=TEXT)))


SPECS: Mapping[str, Callable[[], Shape]] = {
    "AdmissionCheck": admission_check_spec,
    "ClusterQueue": cluster_queue_spec,
    "Cohort": cohort_spec,
    "LocalQueue": local_queue_spec,
    "ProvisioningRequestConfig": provisioning_spec,
    "ResourceFlavor": resource_flavor_spec,
    "Topology": topology_spec,
}


@cache
def priority_class() -> Shape:
    """WorkloadPriorityClass, whose fields are at the top level."""
    metadata = part("meta.v1", "ObjectMeta")
    return thing("value", apiVersion=TEXT, kind=TEXT, metadata=metadata, value=INTEGER, description=TEXT)
