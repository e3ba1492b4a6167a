"""Every version, chart, image and API version that the program or its tests pin, each with its source.

`TOGETHER` names the other files that carry the same version and have to change with it: manifests of package managers
and stack files, which cannot read this module. `tests/unit/catalog/test_pins.py` compares them, and finds each literal
here only. The simulated clouds keep separate lists of what is available, so that they can disagree with a pin.

`make outdated` prints what the package registries have for each of them (docs/pins.md).

Images are pinned by digest where a public repository publishes it. None was found for gIB, its diagnostic image,
KubeRay 1.6.2, Kueue 0.19.2's controller, NVIDIA's plugin 0.20.1, AWS' charts and AWS' images (searched 2026-11-26).
Tags of registry.k8s.io do not move (kubernetes/k8s.io #9736: "an immutable registry"), so the digests of charts are
only documented.
`docker buildx imagetools inspect IMAGE:TAG --format '{{.Manifest.Digest}}'` prints a digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Chart(NamedTuple):
    """A Helm chart: the repository is None where the name is an OCI address. `image` is that of its pods; `tag` is its
    tag, with the digest if one is published, or None for the chart's own."""

    name: str
    version: str
    repository: str | None
    image: str
    tag: str | None = None

    @property
    def release(self) -> str:
        """Name of its release: the chart's own, the last part if that is an address."""
        return self.name.rpartition("/")[2]


# Pulumi

PULUMI = "3.259.0"
"""Engine and Python SDK: they share a wire protocol. The oldest installed engine that setup accepts."""

# Ray

RAY = "2.60.0"
"""Ray on the client and in every image, unless the stack file sets ray.version."""

RAY_IMAGE = f"rayproject/ray-llm:{RAY}-py312-cu130"
"""Default on gke: Ray's image for vLLM, the only one of Ray's with torch. It is built for Python 3.12 and CUDA 13.0
only; vLLM 0.25.0 brings torch with NCCL 2.28.9, and librdmacm-dev the two libnl that gIB loads (ray-project/ray:
docker/ray-llm/Dockerfile, 0168a92e, and #64498, 2026-07-02; Debian's package index; read 2026-11-26)."""

OWN_TAG = f"{RAY}-py311-cu130"
"""Tag of the project's images and of the image that they extend (images/Dockerfile): Ray, Python and CUDA."""

AWS_RAY_TRAIN = "public.ecr.aws/deep-learning-containers/ray:train-ml-cuda-v1.1.0"
"""Ray, torch 2.13.0 for CUDA 13, NCCL 2.29.7, EFA 1.49.0 and aws-ofi-nccl 1.20.0, Python 3.13. AWS releases it only
after multi-node training over EFA and under KubeRay (aws/deep-learning-containers: docs/ray-train, changelog of
2026-09-01, read 2026-11)."""

RAY_IN: Mapping[str, str] = {AWS_RAY_TRAIN: "2.58.0"}
"""Ray version of the images whose tag does not name it, by full image name."""

# KubeRay and Kueue

KUBERAY = Chart("kuberay-operator", "1.6.2", "https://ray-project.github.io/kuberay-helm/", "quay.io/kuberay/operator")
"""Chart and operator. authOptions.secretName needs 1.6 (KubeRay CRDs, read 2026-08). The kubernetes tests run it. 1.7.1
is out (ray-project/kuberay #5318, 2026-09-18); the Go module proxy has 1.7.0, and what the program relies on was read
and seen with 1.6.2."""
RAY_API = "ray.io/v1"

KUEUE = Chart("oci://registry.k8s.io/kueue/charts/kueue", "0.19.2", None, "registry.k8s.io/kueue/kueue", "v0.19.2")
"""Chart and controller (kubernetes-sigs/kueue, ff69552e, 2026-08-22). The kubernetes tests run it. The tag is set: the
chart in Kueue's repository names a staging image, which its release rewrites (charts/kueue). The chart's digest is
sha256:ab436c33ef6c6b9b9e95b633e618bca0e0e436d6581d3b27bd12fc8a8026ab34 (kubernetes/k8s.io #9856, 2026-08-20). 0.19.5 is
out (#9955, 2026-09-17); the tests cannot run it, because the Go module proxy has no release after 0.19.2."""
KUEUE_API = "kueue.x-k8s.io/v1beta2"
KUEUE_CONFIG_API = "config.kueue.x-k8s.io/v1beta2"

# Kubernetes

KUBERNETES_BUILT = "1.36.1"
"""API server, scheduler, kubelet and kubectl that `make test-kubernetes` and `make test-pods` build."""
ADMISSION_API = "admissionregistration.k8s.io/v1"
"""Policies in CEL: v1 from Kubernetes 1.30."""
DEVICE_API = "resource.k8s.io/v1"
"""Device claims: v1 from Kubernetes 1.34."""
EXEC_CREDENTIAL_API = "client.authentication.k8s.io/v1beta1"

# Google Cloud

GIB = "v1.1.2"
"""Of the installer and of the diagnostic image, so that a test measures what jobs use. It supports NCCL 2.27 and older
again, and loads its environment plugin by itself from NCCL 2.28.7 (GoogleCloudPlatform/cluster-toolkit #5674,
2026-05-15). Google's engineers pin both images to it (container-engine-accelerators #609, 2026-05-15: open). 1.1.3 is
not released by then (cluster-toolkit #6263, 2026-09-03: open)."""
_GIB_IMAGES = "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib"
GIB_IMAGE = f"{_GIB_IMAGES}/nccl-plugin-gib:{GIB}"
GIB_DIAGNOSTIC_IMAGE = f"{_GIB_IMAGES}/nccl-plugin-gib-diagnostic:{GIB}"
"""nccl-tests with gIB (container-engine-accelerators: gpudirect-rdma/nccl-test-managed-rdma.yaml, 2433eeed)."""
PAUSE_IMAGE = "gke.gcr.io/pause:3.8@sha256:880e63f94b145e46f1b1082bb71b85e21f16b99b180b9996407d61240ceb9830"
"""As Google's installer pins it (container-engine-accelerators: gpudirect-rdma, 992db812, 2026-06-11)."""

DRANET = Chart(
    "oci://registry.k8s.io/networking/charts/dranet",
    "1.4.0",
    None,
    "registry.k8s.io/networking/dranet",
    "v1.4.0@sha256:8d452a75f32465ca69aa5a7877f476add8641fe7c91a30ace3343174c1ef695f",
)
"""2026-07-17; earlier releases do not return an RDMA device to the node (kubernetes-sigs/dranet #177, PR #180). The
digest, and the chart's, sha256:8da67a537eca5cddeaf8148497acc24c4a88215e9370f386f0df91fa958c1fc0, are those of its
promotion (kubernetes/k8s.io #9736, 2026-07-19)."""

GKE_NETWORK_API = "networking.gke.io/v1"
COMPUTE_CLASS_API = "cloud.google.com/v1"
POD_MONITORING_API = "monitoring.googleapis.com/v1"
OPERATOR_API = "monitoring.coreos.com/v1"
"""The Prometheus Operator: PodMonitor and PrometheusRule."""

# AWS

EKS, EKS_NEXT = "1.35", "1.36"
"""Kubernetes of the EKS cluster, unless the stack file sets the next one. Device claims are v1 from 1.34, and AWS'
DRANET chart requires 1.35 (aws/eks-charts: aws-dranet 1.0.0, 5239609, 2026-08-03). Standard support ends on 2026-12-02
for 1.34, 2027-03-27 for 1.35, 2027-08-02 for 1.36 (a public repository quotes describe-cluster-versions, 2026-09)."""

EKS_RELEASES: Mapping[str, Mapping[str, str]] = {
    # Node image: public repositories pin it, one with the log of a GPU node group of 2026-10-06 (GitHub code search for
    # this text, 2026-11-26). Nodes of the release before, 20260923, have driver 595.91.07 for CUDA 13.2. Autoscaler: of
    # the chart; two public repositories run this digest (the same, 2026-11). Add-ons: EKS' defaults on 2026-08-04, by
    # `aws eks describe-addon-versions` (the same; defaults rather than the newest, so that a pin never upgrades a
    # cluster), and a monitoring agent that public repositories pin for 1.35.
    EKS: {
        "node image": f"{EKS}.8-20260930",
        "autoscaler": "v1.35.0@sha256:2fc9433dd3b47baef0e68d6b1110b770a3c93db10c7bead4c5bc6cb21c72b875",
        "vpc-cni": "v1.22.3-eksbuild.1",
        "kube-proxy": f"v{EKS}.3-eksbuild.17",
        "eks-pod-identity-agent": "v1.3.10-eksbuild.3",
        "coredns": "v1.13.2-eksbuild.11",
        "eks-node-monitoring-agent": "v1.6.4-eksbuild.1",
    },
    # Public repositories pin this node image with these add-ons, and one the agent (GitHub code search for the texts,
    # 2026-11-27). One reports GPU nodes with EFA devices on an earlier image, 1.36.3-20260911. The chart has no release
    # for 1.36: others override its tag, and one names this digest (the same).
    EKS_NEXT: {
        "node image": f"{EKS_NEXT}.4-20260923",
        "autoscaler": "v1.36.1@sha256:461388d03eb5b55db58941ee7a81d9a619dd15302b01cbab9f5a9946715994b4",
        "vpc-cni": "v1.22.4-eksbuild.3",
        "kube-proxy": f"v{EKS_NEXT}.0-eksbuild.25",
        "eks-pod-identity-agent": "v1.3.10-eksbuild.3",
        "coredns": "v1.14.3-eksbuild.23",
        "eks-node-monitoring-agent": "v1.7.2-eksbuild.1",
    },
}
"""Node image, autoscaler's tag and add-ons of a version of Kubernetes. A release of the image has one number on GPU and
CPU nodes; to find the newest: aws ssm get-parameter --name
/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/nvidia/recommended/release_version
An add-on that is missing here has EKS' default, and keeps it: no source names a build, and EKS rejects a wrong one. The
others are pinned because AWS' recommended release changes from day to day: reading it would show a change in every
preview, and replace nodes under jobs. vpc-cni supports efa-only interfaces from 1.18.5 (its releases, read 2026-11)."""

CLUSTER_AUTOSCALER = Chart(
    "cluster-autoscaler",
    "9.59.0",
    "https://kubernetes.github.io/autoscaler",
    "registry.k8s.io/autoscaling/cluster-autoscaler",
)
"""Chart; installs cluster-autoscaler 1.35.0, built for Kubernetes 1.35, unless the tag is set (kubernetes/autoscaler:
release cluster-autoscaler-chart-9.59.0)."""

NVIDIA_PLUGIN = Chart(
    "nvidia-device-plugin", "0.20.1", "https://nvidia.github.io/k8s-device-plugin", "nvcr.io/nvidia/k8s-device-plugin"
)
"""NVIDIA/k8s-device-plugin #2057, 2026-09-22; an image of gpu-operator v26.7.1 (GitHub code search, 2026-11-26)."""

_EKS_CHARTS = "https://aws.github.io/eks-charts"
_EKS_IMAGES = "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks"
EFA_PLUGIN = Chart("aws-efa-k8s-device-plugin", "v0.5.30", _EKS_CHARTS, f"{_EKS_IMAGES}/aws-efa-k8s-device-plugin")
"""The chart's versions begin with v (aws/eks-charts, 5239609, 2026-08-03). A newer chart has v0.5.21-eksbuild.13 of the
plugin (aws/eks-charts #1366, 2026-09-10); its number was not found."""
AWS_DRANET = Chart("aws-dranet", "1.0.0", _EKS_CHARTS, f"{_EKS_IMAGES}/dranet")

DCGM_EXPORTER = Chart(
    "dcgm-exporter", "4.8.4", "https://nvidia.github.io/dcgm-exporter/helm-charts", "nvcr.io/nvidia/k8s/dcgm-exporter"
)
"""A public repository pins this chart "from the first green run", others 4.8.2; NVIDIA/dcgm-exporter's README has image
4.6.0-4.8.3-distroless (GitHub code search for the texts, 2026-11-28). The image is the chart's own."""

EFA_NCCL_TESTS_IMAGE = "public.ecr.aws/hpc-cloud/nccl-tests:cuda13.1.2-efa1.50.0-ofiv1.21.1-ncclv2.31.2-1-testsv2.20.0"
"""nccl-tests with EFA (awslabs/awsome-distributed-ai: micro-benchmarks/nccl-tests/nccl-tests.Dockerfile, 0b55ba5f, and
kubernetes/nccl-tests-gb200.yaml, c428b24b, read 2026-11)."""

NODEADM_API = "node.eks.aws/v1alpha1"
LUSTRE = "2.15"
"""FSx for Lustre."""


class Copy(NamedTuple):
    """A line of another file that carries a pin: the file, and the text that contains the version."""

    file: str
    text: str


TOGETHER: tuple[Copy, ...] = (
    Copy("pyproject.toml", f'"pulumi=={PULUMI}"'),
    Copy("tools/engine/go.mod", f"github.com/pulumi/pulumi/pkg/v3 v{PULUMI}"),
    Copy(".github/workflows/preview.yml", f"pulumi-version: {PULUMI}"),
    Copy("pyproject.toml", f'"ray[default,serve,train]=={RAY}"'),
    Copy("images/Dockerfile", f"ARG RAY_VERSION={RAY}"),
    Copy("Pulumi.gke.yaml", f"image: {RAY_IMAGE}"),
    Copy("Pulumi.gke-ccc.yaml", f"image: {RAY_IMAGE}"),
    Copy("Pulumi.gke-dranet.yaml", f"image: {RAY_IMAGE}"),
    Copy("Pulumi.gke-dws.yaml", f"ray-gke:{OWN_TAG}"),
    Copy("Pulumi.gke-service.yaml", f"ray-gke:{OWN_TAG}"),
    Copy("tools/kubernetes/modules/kuberay/go.mod", f"github.com/ray-project/kuberay/ray-operator v{KUBERAY.version}"),
    Copy("tools/kubernetes/modules/kueue/go.mod", f"sigs.k8s.io/kueue v{KUEUE.version}"),
    Copy("tools/kubernetes/modules/kubernetes/go.mod", f"k8s.io/kubernetes v{KUBERNETES_BUILT}"),
    Copy("tools/kubernetes/modules/kubectl/go.mod", f"k8s.io/kubernetes v{KUBERNETES_BUILT}"),
)
