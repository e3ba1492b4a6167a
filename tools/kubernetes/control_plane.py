"""A real Kubernetes control plane on loopback: etcd, API server, controller manager and scheduler, ready in seconds.

    with ControlPlane(folder) as plane:
        plane.start_kwok()
        plane.api.apply(...)

Programs as documented in https://kubernetes.io/docs/reference/command-line-tools-reference/ (read on 2026-11-21), at
version 1.36.1. RBAC and the default admission plugins are on. The one account is an administrator with a token; the
server's certificate is verified. Nothing is durable: etcd does not sync, and its data go when the plane ends.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from infra.local import loopback
from tools.kubernetes import aggregation, builds, controllers
from tools.kubernetes.api import Api, ApiError, Json, NotYet
from tools.kubernetes.programs import ProgramEnded, Programs

__all__ = ["ControlPlane", "ProgramEnded"]

_READY_S = 90.0
_SERVICES = "10.0.0.0/24"
# Half of the API server's time while CRDs come in is garbage collection: it may use more memory before it starts one.
_FEWER_COLLECTIONS = {"GOGC": "400", "GOMEMLIMIT": "1200MiB"}


class ControlPlane:
    """One control plane in `folder` (made if need be); its logs stay there in `logs`, everything else goes at the end.

    Several can stand side by side, each in a folder of its own. `address` is where it listens; `flags` are added to
    the command lines of the programs that it names.
    """

    def __init__(
        self,
        folder: Path,
        *,
        address: str = "127.0.0.1",
        flags: Mapping[str, Sequence[str]] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self.folder = folder.resolve()
        self.address = address
        self.token = secrets.token_urlsafe(32)
        self.kubeconfig = self.folder / "kubeconfig"
        self.url = ""
        self._flags = dict(flags or {})
        self._say = say
        self._work = self.folder / "work"
        self.authority = self._work / "certificates" / "apiserver.crt"
        self._programs = Programs(self._work, self.folder / "logs")
        self._routes: dict[str, str] = {}
        self._api: Api | None = None

    @property
    def api(self) -> Api:
        """A client of this control plane, for any thread; its waits end when one of the programs dies."""
        if self._api is None:
            raise RuntimeError("the control plane is not started; use it as a context manager")
        return self._api

    def __enter__(self) -> ControlPlane:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End all programs, clients first, and remove what they kept but for the logs. May be called twice."""
        try:
            running = set(self._programs.running())
            self._programs.stop(*(running - {"kube-apiserver", "etcd", "pod-network"}))
            # One after the other: without etcd the API server does not end by itself.
            self._programs.stop("kube-apiserver")
            self._programs.stop("etcd", "pod-network")
        finally:
            shutil.rmtree(self._work, ignore_errors=True)
            self.kubeconfig.unlink(missing_ok=True)

    def start_program(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> int:
        """Start another program beside these, ended with them; `command` gets the flags of that name.

        Returns its process id.
        """
        everything = [*command, *self._flags.get(name, ())]
        return self._programs.start(name, everything, _bare_environment() | dict(environment or {}))

    def stop_program(self, name: str) -> None:
        """End one program and wait for it; one that is gone already is no error."""
        self._programs.stop(name)

    def running(self) -> dict[str, int]:
        """Program -> process id, of those that run now."""
        return self._programs.running()

    def check(self) -> None:
        """Raise ProgramEnded, with the end of the log, if a program has ended that was not told to."""
        self._programs.check()

    def start_kwok(self, *, complete_jobs: bool = True) -> None:
        """Start kwok, which plays the kubelet of every node: nodes get ready, and their pods run, without a machine.

        A Job's pods succeed as soon as they run, or run for ever without `complete_jobs`.
        """
        controllers.start_kwok(self, complete_jobs=complete_jobs)

    def start_kuberay(self, values: Json | None = None, *, dashboard_proxy: str | None = None) -> None:
        """Apply KubeRay's CRDs and start its operator; see `controllers.start_kuberay`."""
        controllers.start_kuberay(self, values, dashboard_proxy=dashboard_proxy)

    def start_kueue(self, values: Json | None = None) -> None:
        """Apply Kueue's CRDs and the ProvisioningRequest CRD and start Kueue; see `controllers.start_kueue`."""
        controllers.start_kueue(self, values)

    def stop_kuberay(self) -> None:
        """End KubeRay's operator; see `controllers.stop_kuberay`."""
        controllers.stop_kuberay(self)

    def stop_kueue(self) -> None:
        """End Kueue and take away what it brought; see `controllers.stop_kueue`."""
        controllers.stop_kueue(self)

    def route(self, address: str, target: str) -> None:
        """Lead the API server's connections to `address` ("IP:PORT" of a Service or a Pod) to `target`, on loopback."""
        self._routes[address] = target
        partial = self._work / "routes.partial"
        partial.write_text(json.dumps(self._routes))
        # Renamed, since the proxy reads it whenever it likes.
        partial.replace(self._work / "routes.json")

    def programs(self, *names: str) -> dict[str, Path]:
        """Where the named programs lie; builds those that are missing."""
        return builds.programs(*names, say=self._say)

    @property
    def work(self) -> Path:
        """A folder for what is only needed while this control plane stands."""
        return self._work

    def _start(self) -> None:
        found = self.programs("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
        # What a killed owner left there is of no use: its programs are gone.
        shutil.rmtree(self._work, ignore_errors=True)
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        self._work.mkdir(mode=0o700)
        client, peer, port = loopback.free_ports(3)
        self.url = f"https://{self.address}:{port}"
        self._write_secrets()
        self._start_pod_network()
        etcd = f"http://127.0.0.1:{client}"
        self.start_program("etcd", [found["etcd"], *_etcd(self._work / "etcd", etcd, f"http://127.0.0.1:{peer}")])
        self.start_program(
            "kube-apiserver", [found["kube-apiserver"], *self._api_server(etcd, port)], _FEWER_COLLECTIONS
        )
        self._wait_for_api_server()
        key = f"--service-account-private-key-file={self._work / 'service-account.key'}"
        common = [f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--bind-address=127.0.0.1"]
        common += ["--secure-port=0", "--kube-api-qps=300", "--kube-api-burst=500"]
        manager = [key, f"--root-ca-file={self.authority}", "--use-service-account-credentials=false"]
        self.start_program("kube-controller-manager", [found["kube-controller-manager"], *common, *manager])
        self.start_program("kube-scheduler", [found["kube-scheduler"], *common])
        # A pod needs its namespace's ServiceAccount, which the controller manager makes.
        self.api.until(
            "the first ServiceAccount", lambda: self.api.get("v1", "ServiceAccount", "default", "default"), _READY_S
        )

    def _start_pod_network(self) -> None:
        (self._work / "routes.json").write_text(json.dumps(self._routes))
        # Relative to the folder in which the programs run: a Unix socket's path may have 107 bytes.
        transport = {"uds": {"udsName": "pods.sock"}}
        connection = {"proxyProtocol": "HTTPConnect", "transport": transport}
        selector = {
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [{"name": "cluster", "connection": connection}],
        }
        (self._work / "egress.json").write_text(json.dumps(selector))
        direct = [] if self._on_loopback else ["--direct"]
        script = Path(__file__).with_name("pod_network.py")
        self.start_program("pod-network", [sys.executable, "-I", script, "pods.sock", "routes.json", *direct])

    @property
    def _on_loopback(self) -> bool:
        return self.address.startswith("127.")

    def _write_secrets(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        (self._work / "service-account.key").write_bytes(key)
        (self._work / "tokens.csv").write_text(f"{self.token},admin,admin,system:masters\n")
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(self._kubeconfig(), indent=1))

    def _kubeconfig(self) -> Json:
        cluster = {"server": self.url, "certificate-authority": str(self.authority)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "plane", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "plane", "context": {"cluster": "plane", "user": "admin"}}],
            "current-context": "plane",
        }

    def _api_server(self, etcd: str, port: int) -> list[str]:
        key = self._work / "service-account.key"
        return [
            f"--etcd-servers={etcd}",
            f"--cert-dir={self.authority.parent}",
            f"--bind-address={self.address}",
            f"--advertise-address={self.address}",
            f"--secure-port={port}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={self._work / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            f"--service-cluster-ip-range={_SERVICES}",
            "--allow-privileged",
            "--profiling=false",
            "--egress-selector-config-file=egress.json",
            # It needs an etcd later than 3.5.1; refused at once, clients list instead, which they wait for otherwise.
            "--feature-gates=WatchList=false",
            # A loopback address is refused as an endpoint of the Service `kubernetes`, again and again. Where there
            # are real pods, one of them may serve an API of its own.
            *(["--endpoint-reconciler-type=none"] if self._on_loopback else aggregation.flags(self._work)),
        ]

    def _wait_for_api_server(self) -> None:
        client: list[Api] = []

        def look() -> bool:
            # The file that vouches for the server comes into being while it starts.
            if not client and self.authority.exists():
                client.append(Api(self.url, self.token, self.authority))
            if not client:
                raise NotYet("no certificate")
            try:
                client[0].request("GET", "/readyz", timeout_s=5)
            except (requests.RequestException, ApiError, OSError) as problem:
                client.clear()
                raise NotYet(_short(problem)) from problem
            return True

        waiting = Api(self.url, self.token, None)
        waiting.alive = self.check
        waiting.until("the API server's /readyz", look, _READY_S)
        self._api = client[0]
        self._api.alive = self.check


def _etcd(data: Path, client: str, peer: str) -> list[str]:
    return [
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _bare_environment() -> dict[str, str]:
    """What a program may inherit: no proxy, no kubeconfig, no credential of the user."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG", "TZ") if name in os.environ}


def _short(problem: Any) -> str:
    return str(problem).splitlines()[0][:200] if str(problem) else type(problem).__name__
