"""GKE's ComputeClass (cloud.google.com/v1) as a CustomResourceDefinition.

Our wording for the fields and rules of GoogleCloudPlatform/compute-class-api: api/cloud.google.com/v1/types.go
(0072a623, read 2026-11-21) and GKE docs ComputeClass CRD reference, 2026-04-13, limited to pools with GPUs. Fields for
TPUs, Autopilot, confidential machines and node tuning are missing: an object with one is refused here.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def _whole(least: int | None = None, most: int | None = None) -> Schema:
    limits = {"minimum": least, "maximum": most}
    return {"type": "integer", **{key: value for key, value in limits.items() if value is not None}}


def _one_of(*values: str, **more: Any) -> Schema:
    return {"type": "string", "enum": list(values), **more}


def _ruled(schema: Schema, *rules: tuple[str, str]) -> Schema:
    return {**schema, "x-kubernetes-validations": [{"rule": rule, "message": says} for rule, says in rules]}


_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_TEXTS = _list(_TEXT)
_LABELS: Schema = {"type": "object", "additionalProperties": _TEXT, "maxProperties": 100}
_TAINTS = _list(_object("key", "effect", key=_TEXT, value=_TEXT, effect=_TEXT), maxItems=100)
_ENABLED = _object("enabled", enabled={**_FLAG, "default": False})
_LOCATION = _object(zones=_TEXTS, locationPolicy=_one_of("ANY", "BALANCED"), zoneTypes=_TEXTS)

_BLOCK = _object("name", name=_TEXT, reservationSubBlock=_object("name", name=_TEXT))
_SPECIFIC = _object("name", name=_TEXT, project=_TEXT, zones=_TEXTS, reservationBlock=_BLOCK)
_RESERVATIONS = _ruled(
    _object("affinity", specific=_list(_SPECIFIC, maxItems=100), affinity=_one_of("Specific", "AnyBestEffort", "None")),
    (
        "!has(self.specific) || self.specific.size() == 0 || self.affinity == 'Specific'",
        "Unable to set specific reservations for non specific affinity",
    ),
    (
        "self.affinity != 'Specific' || (has(self.specific) && self.specific.size() > 0)",
        "At least 1 specific reservation required for specific affinity",
    ),
)
_DISK = _object("diskImageName", diskImageName=_TEXT, project=_TEXT, mode=_TEXT)
_STORAGE = _object(
    bootDiskSize=_whole(10),
    bootDiskType=_one_of("pd-balanced", "pd-standard", "pd-ssd", "hyperdisk-balanced"),
    bootDiskKMSKey=_TEXT,
    localSSDCount=_whole(1),
    secondaryBootDisks=_list(_DISK),
)
_GPU = _object(
    type=_TEXT, count=_whole(0), driverVersion=_one_of("default", "latest", default="default"), topology=_TEXT
)
_RECYCLING = _object("leadTimeSeconds", leadTimeSeconds=_whole(1, 604800))

_PRIORITY = _ruled(
    {
        **_object(
            machineFamily={**_TEXT, "maxLength": 10},
            machineType={**_TEXT, "maxLength": 100},
            minCores=_whole(0),
            minMemoryGb=_whole(0),
            spot=_FLAG,
            nodepools=_TEXTS,
            storage=_STORAGE,
            gpu=_GPU,
            reservations=_RESERVATIONS,
            maxRunDurationSeconds=_whole(),
            maxPodsPerNode=_whole(8, 256),
            flexStart=_object("enabled", enabled={**_FLAG, "default": False}, nodeRecycling=_RECYCLING),
            capacityCheckWaitTimeSeconds=_whole(1, 86400),
            location=_LOCATION,
            placement=_object("policyName", policyName={**_TEXT, "minLength": 1}),
            priorityScore=_whole(1, 1000),
            nodeLabels=_LABELS,
            taints=_TAINTS,
            acceleratorNetworkProfile=_one_of("auto"),
        ),
        "minProperties": 1,
    },
    ("!has(self.nodepools) || size(dyn(self)) == 1", "Nodepool field cannot be set along with other fields"),
    (
        "!(has(self.machineFamily) && has(self.machineType))",
        "MachineFamily and MachineType cannot be set together",
    ),
    (
        "!(has(self.machineType) && (has(self.minCores) || has(self.minMemoryGb)))",
        "MachineType cannot be set together with MinCores/MinMemoryGb",
    ),
    (
        "!(has(self.flexStart) && self.flexStart.enabled && has(self.spot) && self.spot)",
        "Flex Start provisioning model is incompatible with Spot",
    ),
    (
        "!has(self.capacityCheckWaitTimeSeconds) || (has(self.flexStart) && self.flexStart.enabled)",
        "capacityCheckWaitTimeSeconds is only supported for Flex Start and for multi-host TPUs",
    ),
)

_SPEC = _object(
    priorities=_list(_PRIORITY, maxItems=1000, default=[]),
    nodePoolAutoCreation={**_ENABLED, "default": {"enabled": False}},
    activeMigration=_object(
        "optimizeRulePriority",
        optimizeRulePriority={**_FLAG, "default": False},
        ensureAllDaemonSetPodsRunning=_FLAG,
    ),
    whenUnsatisfiable=_one_of("ScaleUpAnyway", "DoNotScaleUp", default="DoNotScaleUp"),
    autoscalingPolicy=_object(
        consolidationDelayMinutes=_whole(1, 1440),
        consolidationThreshold=_whole(0, 100),
        gpuConsolidationThreshold=_whole(0, 100),
    ),
    nodePoolConfig=_object(
        serviceAccount=_TEXT,
        imageType=_one_of("cos_containerd", "ubuntu_containerd"),
        workloadType=_one_of("HIGH_AVAILABILITY", "HIGH_THROUGHPUT"),
        nodeLabels=_LABELS,
        taints=_TAINTS,
        autoRepair=_FLAG,
        autoUpgrade=_FLAG,
        imageStreaming=_ENABLED,
        gvnic=_ENABLED,
        ipType=_TEXT,
        dra=_object(networking=_ENABLED),
    ),
    nodePoolGroup=_object("name", name={**_TEXT, "minLength": 1}),
    priorityDefaults=_object(location=_LOCATION),
    description=_TEXT,
)

_CONDITION = _object(
    "type",
    "status",
    type=_TEXT,
    status=_one_of("True", "False", "Unknown"),
    reason=_TEXT,
    message=_TEXT,
    lastTransitionTime={"type": "string", "format": "date-time"},
    observedGeneration=_whole(0),
)

DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "computeclasses.cloud.google.com"},
    "spec": {
        "group": "cloud.google.com",
        "scope": "Cluster",
        "names": {
            "kind": "ComputeClass",
            "listKind": "ComputeClassList",
            "plural": "computeclasses",
            "singular": "computeclass",
            "shortNames": ["cc", "ccs"],
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": _object(
                        "spec",
                        apiVersion=_TEXT,
                        kind=_TEXT,
                        metadata={"type": "object"},
                        spec=_SPEC,
                        status=_object(conditions=_list(_CONDITION)),
                    )
                },
            }
        ],
    },
}
