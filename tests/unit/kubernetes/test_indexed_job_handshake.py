"""The handshake between the pods of an Indexed Job, over real sockets and without Ray."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from infra.kubernetes.indexed_job_pod import exits
from infra.kubernetes.indexed_job_pod import head as head_module
from infra.kubernetes.indexed_job_pod.head import Head
from infra.kubernetes.indexed_job_pod.part import Link, OverError
from infra.kubernetes.indexed_job_pod.pod import Pod
from infra.kubernetes.indexed_job_pod.worker import Worker
from infra.local.loopback import free_ports
from tests.hostile import bounded_time

HEAD, OTHER = "127.0.0.18", "127.0.0.19"
NAME = "job-0.job-head-svc"


def a_pod(index: int, port: int, *, job: str = "ours", token: str = "t", folder: Path | None = None) -> Pod:
    return Pod(
        address=HEAD,
        index=index,
        job=job,
        token=token,
        nodes=3,
        head_host=NAME,
        folder=folder,
        wait_s=3,
        everywhere=False,
        entrypoint="true",
        port=port,
        gcs_port=1,
        torch_port=1,
        ray=[],
        ray_head=[],
    )


class Heads:
    """Control ports of heads without Ray; the name resolves to `addresses`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
        (self.port,) = free_ports(1)
        self.servers: list[asyncio.Server] = []

        def resolve(_loop: object, host: str, port: int, **_: object) -> Any:
            async def answer() -> list[tuple[int, int, int, str, tuple[str, int]]]:
                assert host == NAME
                if not addresses:
                    raise socket.gaierror("Name or service not known")
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

            return answer()

        monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", resolve)
        self._resolve = resolve

    async def start(self, address: str, **pod: Any) -> Head:
        """Start a head that listens at an address."""
        head = Head(a_pod(0, self.port, **pod))
        listener = socket.create_server((address, self.port))
        self.servers.append(await asyncio.start_server(head._admit, sock=listener))
        return head

    def close(self) -> None:
        for server in self.servers:
            server.close()


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


async def find(worker: Worker) -> str:
    """Return the generation that a worker joins."""
    link, _, generation = await worker._find()
    link.close()
    return generation


@in_a_loop
async def test_worker_joins_the_right_head_of_two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = Heads(monkeypatch, OTHER, HEAD)
    wrong, right = await heads.start(OTHER, job="earlier"), await heads.start(HEAD)
    assert await find(Worker(a_pod(1, heads.port))) == right.generation
    assert (list(wrong.members), list(right.members)) == ([], [1])
    heads.close()


@in_a_loop
async def test_worker_rejects_a_head_without_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The impostor knows the Job's UID, which is no secret, and accepts every worker."""
    heads = Heads(monkeypatch, HEAD)

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(reader, writer)
        link.send("hello", job="ours", generation="0" * 16, nonce="n")
        heard = await link.receive()
        # All it can do is return the proof that it received.
        link.send("welcome", proof=heard["proof"])

    heads.servers.append(await asyncio.start_server(impostor, sock=socket.create_server((HEAD, heads.port))))
    with pytest.raises(OverError, match="wrong token") as over:
        await find(Worker(a_pod(1, heads.port)))
    assert over.value.code == exits.WRONG_TOKEN
    heads.close()


@in_a_loop
async def test_head_rejects_a_worker_without_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = Heads(monkeypatch, HEAD)
    head = await heads.start(HEAD)
    with pytest.raises(OverError, match="wrong token"):
        await find(Worker(a_pod(1, heads.port, token="guessed")))
    assert not head.members
    assert head.refused == ["pod 1, which has another token"]
    heads.close()


HOSTILE = (
    *(
        b"\xff\xfe\n",
        b"[]\n",
        b"{}\n",
        b"[" * 50_000 + b"\n",
        b"x" * 100_000,
        b'{"kind": "join"}\n',
        b"GET / HTTP/1.1\r\n",
    ),
    *(
        b'{"kind": "join", "index": %s, "node": 1, "nonce": 1, "proof": 1}\n' % index
        for index in (b"[]", b"1e999", b"null")
    ),
    b'{"kind": "join", "index": 1, "node": "n", "nonce": "n", "proof": "t\xc3\xa4st"}\n',
    *(b'{"kind": "join", "index": %d, "node": "n", "nonce": "n", "proof": "0"}\n' % index for index in range(200)),
)


def test_pods_join_and_the_log_stays_short_whatever_others_do_with_the_port(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Idle connections, heartbeats without an end, and messages with any content, from another pod of the cluster."""
    heads = Heads(monkeypatch, HEAD)
    monkeypatch.setattr(head_module, "ANSWER_S", 1.0)
    problems: list[dict[str, Any]] = []

    async def beats(connection: Link) -> None:
        while True:
            connection.send("beat")
            await asyncio.sleep(0.1)

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
        head = await heads.start(HEAD)
        held = [await asyncio.open_connection(HEAD, heads.port) for _ in range(head_module.GREETINGS + 50)]
        for text in HOSTILE:
            _, writer = await asyncio.open_connection(HEAD, heads.port)
            writer.write(text)
        reader, writer = await asyncio.open_connection(HEAD, heads.port)
        beating = asyncio.ensure_future(beats(Link(reader, writer)))
        assert await asyncio.wait_for(find(Worker(a_pod(2, heads.port))), 5) == head.generation
        for opened, _ in [*held[:50], (reader, None)]:
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(opened.read(), 5)
        beating.cancel()
        assert len(head.greeting) <= head_module.GREETINGS
        assert head.refused == ["another pod", "pod 1, which has another token", "pod 2, which has another token"]
        heads.close()

    asyncio.run(run())
    assert problems == []
    assert capsys.readouterr().out.count(f", from {HEAD.rpartition('.')[0]}") == 3


@in_a_loop
async def test_second_pod_of_an_index_ends_the_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = Heads(monkeypatch, HEAD)
    head = await heads.start(HEAD)
    link, *_ = await Worker(a_pod(1, heads.port))._find()
    with pytest.raises(OverError, match="was lost before") as refused:
        await find(Worker(a_pod(1, heads.port)))
    assert refused.value.code == exits.PEER_LOST
    assert head.over.result().code == exits.PEER_LOST
    link.close()
    heads.close()


@in_a_loop
async def test_worker_uses_the_file_if_the_name_does_not_resolve(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    heads = Heads(monkeypatch)
    head = await heads.start(HEAD, folder=tmp_path)
    head._announce()
    assert await find(Worker(a_pod(2, heads.port, folder=tmp_path))) == head.generation
    with pytest.raises(OverError, match="does not resolve") as over:
        await find(Worker(a_pod(1, heads.port)))
    assert over.value.code == exits.HEAD_NOT_FOUND
    heads.close()


@pytest.mark.parametrize("what", ["fifo", "link", "endless", "list", "deep"])
@in_a_loop
async def test_nothing_at_the_place_of_the_file_stops_a_pod(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    """Pods of other jobs may have the same storage."""
    heads = Heads(monkeypatch)
    file = tmp_path / "rdma-ray" / "ours.json"
    file.parent.mkdir()
    match what:
        case "fifo":
            os.mkfifo(file)
        case "link":
            (tmp_path / "other").write_text('{"job": "other", "address": "1:1"}')
            file.symlink_to(tmp_path / "other")
        case "endless":
            with file.open("wb") as opened:
                opened.truncate(2**40)
        case "list":
            file.write_text("[]")
        case "deep":
            file.write_text("[" * 50_000)

    with bounded_time(), pytest.raises(OverError, match=r"json cannot be read") as over:
        await find(Worker(a_pod(1, heads.port, folder=tmp_path)))
    assert over.value.code == exits.HEAD_NOT_FOUND
    with bounded_time():
        await Head(a_pod(0, heads.port, folder=tmp_path)).dismiss(0, "")
    assert file.lstat()


@in_a_loop
async def test_worker_ignores_another_server_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = Heads(monkeypatch, HEAD)

    async def web(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    heads.servers.append(await asyncio.start_server(web, sock=socket.create_server((HEAD, heads.port))))
    with pytest.raises(OverError, match="leads to") as over:
        await find(Worker(a_pod(1, heads.port)))
    assert over.value.code == exits.HEAD_NOT_FOUND
    heads.close()
