"""A real Kubernetes control plane on this machine: etcd, API server, controller manager, scheduler, and controllers.

    with ControlPlane(folder) as plane:
        plane.start_kwok()
        plane.api.apply(...)

Version 1.36.1 (https://kubernetes.io/docs/reference/command-line-tools-reference/, read 2026-11-21). RBAC and the
default admission plugins are on. The only account is an administrator with a token. Nothing is durable.

`kwokctl` is not used: its binary runtime starts daemons that outlive their owner, and it has no setting for the
egress selector, by which the API server reaches webhooks here.
"""

from __future__ import annotations

import datetime
import json
import secrets
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import requests
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from infra.kubernetes.queue_objects import KUEUE_NAMESPACE
from infra.local import loopback
from tools.kubernetes import builds, kubectl, kuberay, kueue
from tools.kubernetes.api import Api, ApiError, Json, NotYet
from tools.kubernetes.containers import config, flags
from tools.process import Programs, plain_environment

CONTEXT = "rdma-ray"
"""Context of the kubeconfig, as in Pulumi.kubernetes.yaml."""
_READY_S = 90.0
_CLIENT = "front-proxy-client"
_CERTIFICATE_DAYS = 7
# Outside the Services' range in kube-apiserver.flags.
_POD_ADDRESSES = "10.244.0.0/16"
# While CRDs are installed, the API server would spend half of its time on garbage collection.
_FEWER_COLLECTIONS = {"GOGC": "400", "GOMEMLIMIT": "1200MiB"}
_KWOK_STAGES = (
    "node/fast/node-initialize",
    "node/heartbeat-with-lease/node-heartbeat-with-lease",
    "pod/fast/pod-ready",
    "pod/fast/pod-complete",
    "pod/fast/pod-delete",
)


class ControlPlane(Programs):
    """Control plane as a context manager. Several can run at the same time, each in its own folder.

    `api` is its client, for any thread; waits of `api` end when one of the programs ends.

    The controllers run as processes and as the administrator: roles and pods of their charts have no effect.

    Args:
        folder: Created if it does not exist. At the end, everything in it but the subfolder `logs` is deleted.
        address: IP address that the API server listens on. With real pods it is not a loopback address.
        server_flags: Flags to add to the API server's command line.
        say: Receives progress.
    """

    def __init__(
        self,
        folder: Path,
        *,
        address: str = "127.0.0.1",
        server_flags: Sequence[str] = (),
        say: Callable[[str], None] = print,
    ) -> None:
        self.folder = folder.resolve()
        self.address = address
        self.token = secrets.token_urlsafe(32)
        self.kubeconfig = self.folder / "kubeconfig"
        self._as_admin = f"--kubeconfig={self.kubeconfig}"
        self.url = ""
        self.work = self.folder / "work"
        self.authority = self.work / "certificates" / "apiserver.crt"
        self._server_flags = server_flags
        self._say = say
        self._on_loopback = address.startswith("127.")
        super().__init__(self.folder / "logs", work=self.work)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, *names: str) -> None:
        """Stop programs; without names, stop all of them, and delete their files except logs."""
        super().stop(*names)
        if not names:
            shutil.rmtree(self.work, ignore_errors=True)
            self.kubeconfig.unlink(missing_ok=True)

    def start_kwok(self, *, complete_jobs: bool = True) -> None:
        """Start kwok, which simulates the kubelet of every node: nodes become ready and their pods run.

        A Job's pods succeed as soon as they run; without `complete_jobs`, they run until they are deleted.
        """
        stages = [stage for stage in _KWOK_STAGES if complete_jobs or not stage.endswith("pod-complete")]
        folder = builds.module_folder("sigs.k8s.io/kwok") / "kustomize" / "stage"
        file = self.work / "kwok.yaml"
        file.write_text("\n---\n".join((folder / f"{stage}.yaml").read_text() for stage in stages))
        options = ["--manage-all-nodes=true", "--node-lease-duration-seconds=40", f"--cidr={_POD_ADDRESSES}"]
        self.start("kwok", [self._program("kwok"), self._as_admin, f"--config={file}", *options])

    def start_kuberay(self, values: Json | None = None, *, dashboard_proxy: str | None = None) -> None:
        """Apply KubeRay's CRDs, start its operator, and wait until it is ready.

        Args:
            values: Values of the chart kuberay-operator 1.6.2.
            dashboard_proxy: URL of an HTTP proxy that answers for the Ray dashboards, since Service names
                (http://HEAD-SERVICE.NAMESPACE.svc.cluster.local:8265) do not resolve here.
        """
        program = self._program("ray-operator")
        crds = [body for body in kuberay.objects(kuberay.complete()) if body["kind"] == "CustomResourceDefinition"]
        kubectl.install(self.api, crds)
        probe = loopback.free_ports(1)[0]
        options = [
            "--enable-leader-election=false",
            "--metrics-addr=0",
            f"--health-probe-bind-address=127.0.0.1:{probe}",
        ]
        complete = kuberay.complete(values or {})
        environment = {each["name"]: str(each["value"]) for each in complete.get("env") or []}
        if dashboard_proxy:
            environment |= {"HTTP_PROXY": dashboard_proxy, "NO_PROXY": "127.0.0.1"}
        command: list[str | Path] = [program, self._as_admin, *options, *kuberay.flags(complete)]
        self.start("ray-operator", command, plain_environment() | {"ENABLE_WEBHOOKS": "false"} | environment)
        self._wait_until_ready("ray-operator", Api(f"http://127.0.0.1:{probe}", "", None))

    def stop_kuberay(self) -> None:
        """Stop the operator. Its CRDs stay, as after `helm uninstall`."""
        self.stop("ray-operator")

    def start_kueue(self, values: Json | None = None) -> None:
        """Install the chart kueue 0.19.2 and the ProvisioningRequest CRD, with a process instead of a pod.

        The API server connects to Kueue's webhooks, with the certificate that Kueue creates, through `pod_network`.
        """
        program = self._program("kueue")
        complete = kueue.complete(values or {})
        webhook, probe = loopback.free_ports(2)
        # In a pod, the kubelet mounts the Secret that Kueue fills.
        certificates = self.work / "kueue-certificates"
        certificates.mkdir(exist_ok=True)
        # While Kueue's own API is registered and not served, no namespace can be deleted.
        in_pod = ("Deployment", "APIService")
        kubectl.install(self.api, (body for body in kueue.objects(complete) if body["kind"] not in in_pod))
        service = self.api.get("v1", "Service", kueue.SERVICE, KUEUE_NAMESPACE) or {}
        routes = {f"{service['spec']['clusterIP']}:443": f"127.0.0.1:{webhook}"}
        (self.work / "routes.partial").write_text(json.dumps(routes))
        # Replaced atomically: the proxy may read the file at any time.
        (self.work / "routes.partial").replace(self.work / "routes.json")
        settings = kueue.configuration(complete) | {
            "namespace": KUEUE_NAMESPACE,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{probe}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(certificates)},
            "leaderElection": {"leaderElect": False},
        }
        file = self.work / "kueue.yaml"
        file.write_text(yaml.safe_dump(settings))
        # Its own API server writes its certificate to /visibility, which only a container has.
        gates = kubectl.feature_gates(complete["controllerManager"]["featureGates"], VisibilityOnDemand=False)
        self.start("kueue", [program, self._as_admin, f"--config={file}", gates, "--zap-log-level=2"])
        self.api.until("Kueue's certificate", lambda: kueue.write_certificate(self.api, certificates), _READY_S)
        self._wait_until_ready("kueue", Api(f"http://127.0.0.1:{probe}", "", None))
        self.api.until("Kueue's webhooks", lambda: kueue.webhooks_answer(self.api), _READY_S)

    def stop_kueue(self) -> None:
        """Stop Kueue and delete its chart's objects, as `helm uninstall` does."""
        kueue.uninstall(self.api, stop=lambda: self.stop("kueue"))

    def _program(self, name: str) -> Path:
        return builds.programs(name, say=self._say)[name]

    def _start(self) -> None:
        names = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
        found = builds.programs(*names, say=self._say)
        # Files of a killed owner, whose programs have ended.
        shutil.rmtree(self.work, ignore_errors=True)
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        self.work.mkdir(mode=0o700)
        client, peer, port = loopback.free_ports(3)
        self.url = f"https://{self.address}:{port}"
        key = self.work / "service-account.key"
        _write(key, _pem(ec.generate_private_key(ec.SECP256R1())))
        (self.work / "tokens.csv").write_text(f"{self.token},admin,admin,system:masters\n")
        _write_kubeconfig(self.kubeconfig, self.url, self.authority, self.token)
        (self.work / "routes.json").write_text("{}")
        (self.work / "egress.yaml").write_text(config("egress.yaml"))
        script = Path(__file__).with_name("pod_network.py")
        direct = [] if self._on_loopback else ["--direct"]
        self.start("pod-network", [sys.executable, "-I", script, "pods.sock", "routes.json", *direct])
        etcd = f"http://127.0.0.1:{client}"
        data = flags("etcd", data=self.work / "etcd", client=etcd, peer=f"http://127.0.0.1:{peer}")
        self.start("etcd", [found["etcd"], *data])
        files = {"certificates": self.authority.parent, "key": key, "tokens": self.work / "tokens.csv"}
        server = flags("kube-apiserver", etcd=etcd, address=self.address, port=port, **files)
        # The Service `kubernetes` rejects a loopback endpoint. Real pods may serve an aggregated API.
        loopback_only = ["--endpoint-reconciler-type=none"]
        server += loopback_only if self._on_loopback else _front_proxy_flags(self.work)
        command: list[str | Path] = [found["kube-apiserver"], *server, *self._server_flags]
        self.start("kube-apiserver", command, plain_environment() | _FEWER_COLLECTIONS)
        self.api = Api(self.url, self.token, self.authority, alive=self.check)
        self._wait_until_ready("the API server", self.api)
        for name in ("kube-controller-manager", "kube-scheduler"):
            own = flags(name, kubeconfig=self.kubeconfig, key=key, authority=self.authority)
            self.start(name, [found[name], *own])
        # Pods need a ServiceAccount, which the controller manager creates.
        account = ("v1", "ServiceAccount", "default", "default")
        self.api.until("the first ServiceAccount", lambda: self.api.get(*account), _READY_S)

    def _wait_until_ready(self, name: str, server: Api) -> None:
        def ready() -> bool:
            try:
                server.request("GET", "/readyz", timeout_s=5)
            # OSError: the API server writes its certificate while it starts.
            except (requests.RequestException, ApiError, OSError) as problem:
                raise NotYet(str(problem)[:200]) from problem
            return True

        self.api.until(f"{name}'s /readyz", ready, _READY_S)


def _write_kubeconfig(file: Path, url: str, authority: Path, token: str) -> None:
    """Write a kubeconfig for one user with a token. `authority` signs the server's certificate."""
    cluster = {"server": url, "certificate-authority": str(authority)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": "admin"}}],
        "current-context": CONTEXT,
    }
    _write(file, json.dumps(content, indent=1).encode())


def _front_proxy_flags(folder: Path) -> list[str]:
    """Write the API server's client certificate for aggregated APIs, such as Kueue's. Returns its flags.

    https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/ (read 2026-11). The certificate is
    its own authority, which the API server publishes in the ConfigMap extension-apiserver-authentication.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _CLIENT)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        # Tolerates small clock corrections.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=_CERTIFICATE_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = {suffix: folder / f"front-proxy-client.{suffix}" for suffix in ("crt", "key")}
    _write(files["crt"], certificate.public_bytes(serialization.Encoding.PEM))
    _write(files["key"], _pem(key))
    return [
        f"--requestheader-client-ca-file={files['crt']}",
        f"--requestheader-allowed-names={_CLIENT}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={files['crt']}",
        f"--proxy-client-key-file={files['key']}",
    ]


def _write(file: Path, content: bytes) -> None:
    file.touch(mode=0o600)
    file.write_bytes(content)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(encoding, form, serialization.NoEncryption())
