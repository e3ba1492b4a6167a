"""Shapes of custom kinds: Ray's, GKE's, Kueue's. Hand-written tables, one source each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from rehearsal.clouds.kubernetes import kueue_shapes
from rehearsal.clouds.kubernetes.identity import Api
from rehearsal.clouds.kubernetes.kueue_shapes import KUEUE
from rehearsal.clouds.kubernetes.sdk_shapes import built_in, part
from rehearsal.clouds.kubernetes.shapes import (
    ANY,
    BOOLEAN,
    INTEGER,
    NUMBER,
    TEXT,
    TEXT_MAP,
    TEXTS,
    Shape,
    listed,
    one_of,
    thing,
)

KUBERAY = "ray-project/kuberay: ray-operator/apis/ray/v1 and config/crd/bases, v1.6.2, 2026-06-17"
GKE_NETWORKING = "GoogleCloudPlatform/gke-networking-api: apis/network/v1, 39b01c24, read 2026-11"
COMPUTE_CLASS = "GKE docs ComputeClass CRD reference, 2026-04-13"


def _group(*required: str, **more: Shape) -> Shape:
    return thing(
        "template",
        *required,
        template=part("core.v1", "PodTemplateSpec"),
        rayStartParams=TEXT_MAP,
        resources=TEXT_MAP,
        labels=TEXT_MAP,
        **more,
    )


def _redis() -> Shape:
    return thing(value=TEXT, valueFrom=part("core.v1", "EnvVarSource"))


@cache
def _ray_cluster_spec() -> Shape:
    service = built_in(Api("", "v1", "Service"))
    return thing(
        "headGroupSpec",
        upgradeStrategy=thing(type=one_of("Recreate", "None")),
        authOptions=thing(enableK8sTokenAuth=BOOLEAN, secretName=TEXT, mode=one_of("disabled", "token")),
        suspend=BOOLEAN,
        managedBy=one_of("ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"),
        autoscalerOptions=thing(
            resources=part("core.v1", "ResourceRequirements"),
            image=TEXT,
            imagePullPolicy=TEXT,
            securityContext=part("core.v1", "SecurityContext"),
            idleTimeoutSeconds=INTEGER,
            upscalingMode=one_of("Default", "Aggressive", "Conservative"),
            version=one_of("v1", "v2"),
            env=listed(part("core.v1", "EnvVar")),
            envFrom=listed(part("core.v1", "EnvFromSource")),
            volumeMounts=listed(part("core.v1", "VolumeMount")),
        ),
        headServiceAnnotations=TEXT_MAP,
        enableInTreeAutoscaling=BOOLEAN,
        gcsFaultToleranceOptions=thing(
            "redisAddress",
            redisAddress=TEXT,
            externalStorageNamespace=TEXT,
            redisUsername=_redis(),
            redisPassword=_redis(),
        ),
        headGroupSpec=_group(headService=service or ANY, enableIngress=BOOLEAN, serviceType=TEXT),
        rayVersion=TEXT,
        workerGroupSpecs=listed(
            # minReplicas and maxReplicas are required, but their defaults apply first.
            _group(
                "groupName",
                suspend=BOOLEAN,
                groupName=TEXT,
                replicas=INTEGER,
                minReplicas=INTEGER,
                maxReplicas=INTEGER,
                idleTimeoutSeconds=INTEGER,
                scaleStrategy=thing(workersToDelete=TEXTS),
                numOfHosts=INTEGER,
            )
        ),
    )


def _ray_job_spec() -> Shape:
    policy = thing("policy", policy=one_of("DeleteCluster", "DeleteWorkers", "DeleteSelf", "DeleteNone"))
    condition = thing(jobStatus=one_of("SUCCEEDED", "FAILED"), jobDeploymentStatus=one_of("Failed"), ttlSeconds=INTEGER)
    return thing(
        activeDeadlineSeconds=INTEGER,
        backoffLimit=INTEGER,
        rayClusterSpec=_ray_cluster_spec(),
        submitterPodTemplate=part("core.v1", "PodTemplateSpec"),
        metadata=TEXT_MAP,
        clusterSelector=TEXT_MAP,
        submitterConfig=thing(backoffLimit=INTEGER),
        managedBy=one_of("ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"),
        deletionStrategy=thing(
            onSuccess=policy,
            onFailure=policy,
            deletionRules=listed(thing("policy", "condition", policy=policy.fields["policy"], condition=condition)),
        ),
        entrypoint=TEXT,
        runtimeEnvYAML=TEXT,
        jobId=TEXT,
        submissionMode=one_of("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"),
        entrypointResources=TEXT,
        entrypointNumCpus=NUMBER,
        entrypointNumGpus=NUMBER,
        ttlSecondsAfterFinished=INTEGER,
        preRunningDeadlineSeconds=INTEGER,
        shutdownAfterJobFinishes=BOOLEAN,
        suspend=BOOLEAN,
    )


def _network_spec() -> Shape:
    return thing(
        "type",
        type_=one_of("L2", "L3", "Device"),
        provider=one_of("GKE"),
        nodeInterfaceMatcher=thing(interfaceName=TEXT),
        l2NetworkConfig=thing(vlanID=INTEGER, prefixLength4=INTEGER),
        networkLifecycle=one_of("AnthosManaged", "UserManaged"),
        routes=listed(thing("to", to=TEXT)),
        gateway4=TEXT,
        dnsConfig=thing("nameservers", nameservers=TEXTS, searches=TEXTS),
        externalDHCP4=BOOLEAN,
        parametersRef=thing("group", "kind", "name", group=TEXT, kind=TEXT, name=TEXT, namespace=TEXT),
        IPAMMode=one_of("Internal", "External"),
        IPAMMode6=one_of("Internal", "External"),
    )


def _param_set_spec() -> Shape:
    return thing(
        "vpc",
        "vpcSubnet",
        vpc=TEXT,
        vpcSubnet=TEXT,
        # DPDK-VFIO exists, too; no machine type with RDMA uses it.
        deviceMode=one_of("DPDK-VFIO", "NetDevice", "RDMA"),
        podIPv4Ranges=thing("rangeNames", rangeNames=TEXTS),
    )


def _compute_class_spec() -> Shape:
    taints = listed(thing("key", "effect", key=TEXT, value=TEXT, effect=TEXT))
    location = thing(zones=TEXTS, locationPolicy=one_of("ANY", "BALANCED"), zoneTypes=TEXTS)
    priority = thing(
        machineType=TEXT,
        machineFamily=TEXT,
        minCores=INTEGER,
        minMemoryGb=INTEGER,
        gpu=thing("type", "count", type_=TEXT, count=INTEGER, driverVersion=one_of("default", "latest")),
        flexStart=thing(
            "enabled",
            enabled=BOOLEAN,
            nodeRecycling=thing("leadTimeSeconds", leadTimeSeconds=INTEGER),
        ),
        capacityCheckWaitTimeSeconds=INTEGER,
        maxRunDurationSeconds=INTEGER,
        spot=BOOLEAN,
        reservations=thing(
            "affinity", affinity=one_of("Specific", "AnyBestEffort", "None"), specific=listed(_reservation())
        ),
        storage=thing(localSSDCount=INTEGER, bootDiskType=TEXT, bootDiskSize=INTEGER, secondaryBootDisks=listed(ANY)),
        location=location,
        placement=thing(policyName=TEXT),
        maxPodsPerNode=INTEGER,
        priorityScore=INTEGER,
        nodeSystemConfig=ANY,
        taints=taints,
        nodeLabels=TEXT_MAP,
        acceleratorNetworkProfile=one_of("auto"),
        nodepools=TEXTS,
    )
    return thing(
        "priorities",
        activeMigration=thing(optimizeRulePriority=BOOLEAN, ensureAllDaemonSetPodsRunning=BOOLEAN),
        autoscalingPolicy=thing(
            consolidationDelayMinutes=INTEGER, consolidationThreshold=INTEGER, gpuConsolidationThreshold=INTEGER
        ),
        nodePoolAutoCreation=thing(enabled=BOOLEAN),
        nodePoolConfig=thing(
            imageType=TEXT,
            serviceAccount=TEXT,
            autoRepair=BOOLEAN,
            autoUpgrade=BOOLEAN,
            nodeLabels=TEXT_MAP,
            taints=taints,
            imageStreaming=thing(enabled=BOOLEAN),
            gvnic=thing(enabled=BOOLEAN),
            ipType=TEXT,
            workloadType=TEXT,
            dra=thing(networking=thing(enabled=BOOLEAN)),
        ),
        nodePoolGroup=thing(name=TEXT),
        autopilot=thing(enabled=BOOLEAN),
        priorityDefaults=thing(nodeSystemConfig=ANY, location=location),
        priorities=listed(priority),
        whenUnsatisfiable=one_of("ScaleUpAnyway", "DoNotScaleUp"),
    )


def _reservation() -> Shape:
    block = thing(name=TEXT, reservationSubBlock=thing(name=TEXT))
    return thing("name", name=TEXT, project=TEXT, zones=TEXTS, reservationBlock=block)


_SPECS: Mapping[tuple[str, str, str], tuple[Callable[[], Shape], str]] = {
    ("ray.io", "v1", "RayCluster"): (_ray_cluster_spec, KUBERAY),
    ("ray.io", "v1", "RayJob"): (_ray_job_spec, KUBERAY),
    ("networking.gke.io", "v1", "Network"): (_network_spec, GKE_NETWORKING),
    ("networking.gke.io", "v1", "GKENetworkParamSet"): (_param_set_spec, GKE_NETWORKING),
    ("cloud.google.com", "v1", "ComputeClass"): (_compute_class_spec, COMPUTE_CLASS),
    **{("kueue.x-k8s.io", "v1beta2", kind): (spec, KUEUE) for kind, spec in kueue_shapes.SPECS.items()},
}


def custom(api: Api) -> tuple[Shape, str] | None:
    """Return the shape of a custom kind and its source; None if there is no table for it."""
    if (api.group, api.version, api.kind) == ("kueue.x-k8s.io", "v1beta2", "WorkloadPriorityClass"):
        return kueue_shapes.priority_class(), KUEUE
    known = _SPECS.get((api.group, api.version, api.kind))
    if known is None:
        return None
    spec, source = known
    metadata = part("meta.v1", "ObjectMeta")
    whole = thing("spec", apiVersion=TEXT, kind=TEXT, metadata=metadata, spec=_cached(spec), status=ANY)
    return whole, source


@cache
def _cached(spec: Callable[[], Shape]) -> Shape:
    return spec()
