"""Conditions of healthy nodes, as public listings of `kubectl describe node` have them: type, status, reason."""

from __future__ import annotations

KUBELET = """
MemoryPressure False KubeletHasSufficientMemory
DiskPressure False KubeletHasNoDiskPressure
PIDPressure False KubeletHasSufficientPID
Ready True KubeletReady
"""
"""Of every node, and all of EKS 1.18 without the agent (newrelic/nri-kubernetes#136)."""

GKE = f"""
FrequentUnregisterNetDevice False NoFrequentUnregisterNetDevice
SysctlChanged True NodeSysctlChange
FrequentKubeletRestart False NoFrequentKubeletRestart
FrequentDockerRestart False NoFrequentDockerRestart
FrequentContainerdRestart False NoFrequentContainerdRestart
KernelDeadlock False KernelHasNoDeadlock
ReadonlyFilesystem False FilesystemIsNotReadOnly
ReadOnlyRootFileSystem False ReadOnlyRootFileSystemNotDetected
CorruptDockerOverlay2 False NoCorruptDockerOverlay2
StoragePressureRootFileSystem False StoragePressureRootFileSystemNotDetected
CperHardwareErrorFatal False CperHardwareHasNoFatalError
ResourceExhausted False ResourcesOK
XfsShutdown False XfsHasNotShutDown
Swap False SwapNotDetected
KubeletConfigChanged False NoKubeletConfigChangeDetected
UnsupportedEBPFPrograms False UnsupportedEBPFProgramsNotDetected
DPv2MigrationUnsupportedCNI False DPv2MigrationUnsupportedCNINotDetected
DeprecatedUsingV1Alpha2Cri False DeprecatedUsingV1Alpha2CriNotDetected
DeprecatedPullingSchemaV1Image False DeprecatedPullingSchemaV1ImageDetected
DeprecatedAuthsFieldInContainerdConfiguration False DeprecatedAuthsFieldInContainerdConfigurationNotDetected
DeprecatedMirrorsFieldInContainerdConfiguration False DeprecatedMirrorsFieldInContainerdConfigurationNotDetected
DeprecatedConfigsFieldInContainerdConfiguration False DeprecatedConfigsFieldInContainerdConfigurationNotDetected
NetworkUnavailable False RouteCreated
{KUBELET}"""
"""Of nodes of GKE 1.35.7-gke.1222000, 2026-09-15, in a public log of cluster dbs-mgmt-primary; ReadonlyFilesystem of
older nodes, as in etcd-io/etcd#13056; NetworkUnavailable as in kubernetes/kubernetes#48721."""

EKS = f"""
{KUBELET}
KernelReady True KernelIsReady
AcceleratedHardwareReady True NvidiaAcceleratedHardwareIsReady
ContainerRuntimeReady True ContainerRuntimeIsReady
StorageReady True DiskIsReady
NetworkingReady True NetworkingIsReady
"""
"""With eks-node-monitoring-agent, 2026-02-07 (an AWS blog on hybrid nodes), and in a public node analyzer's tests."""

AKS = f"""
{KUBELET}
FrequentDockerRestart False NoFrequentDockerRestart
XIDError False XIDErrorIsNotPresent
NetworkUnavailable False RouteCreated
"""
"""Types of another cloud (Azure/AgentBaker#8797, 2026-06-30), once its routes are there."""

RKE2_SERVER = f"{KUBELET}EtcdIsVoter True MemberNotLearner\nNetworkUnavailable False FlannelIsUp\n"
RKE2_AGENT = f"{KUBELET}EtcdIsVoter False NotAMember\nNetworkUnavailable False CalicoIsUp\n"
"""A server and an agent, in public reports of 2025 (k3s-io/k3s: pkg/etcd/etcd.go)."""

HEALTHY = {"gke": GKE, "eks": EKS, "aks": AKS, "rke2 server": RKE2_SERVER, "rke2 agent": RKE2_AGENT, "plain": KUBELET}


def conditions(recorded: str, since: str) -> list[dict[str, str]]:
    """Return a listing as an object's conditions."""
    rows = [line.split() for line in recorded.splitlines() if line]
    return [
        {"type": type_, "status": status, "reason": reason, "lastTransitionTime": since}
        for type_, status, reason in rows
    ]
