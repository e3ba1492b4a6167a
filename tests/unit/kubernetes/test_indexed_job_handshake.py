"""How pods of an Indexed Job find and join their head, over real sockets and without Ray; test_link.py has the rest."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from infra.kubernetes.indexed_job_pod import exits
from infra.kubernetes.indexed_job_pod.head import Head
from infra.kubernetes.indexed_job_pod.link import Members
from infra.kubernetes.indexed_job_pod.part import OverError
from infra.kubernetes.indexed_job_pod.pod import Pod
from infra.kubernetes.indexed_job_pod.worker import Worker
from infra.local.loopback import free_ports
from tests.hostile import bounded_time

HEAD, OTHER = "127.0.0.18", "127.0.0.19"
NAME = "job-0.job-head-svc"


def a_pod(index: int, port: int, *, job: str = "ours", token: str = "t", folder: Path | None = None) -> Pod:
    return Pod(
        address=HEAD, index=index, job=job, token=token, nodes=3, head_host=NAME, folder=folder, wait_s=3,
        everywhere=False, entrypoint="true", port=port, gcs_port=1, torch_port=1, ray=[], ray_head=[],
    )  # fmt: skip


class Heads:
    """Control ports of heads without Ray; the name resolves to `addresses`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
        (self.port,) = free_ports(1)

        def resolve(_loop: object, host: str, port: int, **_: object) -> Any:
            async def answer() -> list[tuple[int, int, int, str, tuple[str, int]]]:
                assert host == NAME
                if not addresses:
                    raise socket.gaierror("Name or service not known")
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

            return answer()

        monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", resolve)

    def start(self, address: str, **pod: Any) -> tuple[Head, Members]:
        """Start a head that listens at an address."""
        head = Head(a_pod(0, self.port, **pod))
        return head, head.listen(socket.create_server((address, self.port)))


async def find(worker: Worker) -> str:
    """Return the generation that a worker joins."""
    link, _ = await worker._find()
    link.connection.close()
    return link.generation


def test_worker_joins_the_right_head_of_two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = Heads(monkeypatch, OTHER, HEAD)

    async def run() -> None:
        (_, wrong), (_, right) = heads.start(OTHER, job="earlier"), heads.start(HEAD)
        assert await find(Worker(a_pod(1, heads.port))) == right.generation
        assert (list(wrong.links), list(right.links)) == ([], ["1"])

    asyncio.run(run())


def test_pods_with_different_tokens_end_and_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = Heads(monkeypatch, HEAD)

    async def run() -> None:
        head, members = heads.start(HEAD)
        with pytest.raises(OverError, match=f"wrong token: the head at {HEAD}:") as over:
            await find(Worker(a_pod(1, heads.port, token="guessed")))
        assert (over.value.code, list(members.links)) == (exits.WRONG_TOKEN, [])
        missing = "too few nodes: no word from pod 1, 2 of 3; refused: pod 1, which has another token"
        assert head._missing() == missing

    asyncio.run(run())


def test_second_pod_of_an_index_ends_the_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = Heads(monkeypatch, HEAD)

    async def run() -> None:
        head, _ = heads.start(HEAD)
        link, _ = await Worker(a_pod(1, heads.port))._find()
        with pytest.raises(OverError, match="was lost before") as refused:
            await find(Worker(a_pod(1, heads.port)))
        assert refused.value.code == exits.PEER_LOST
        assert head.over.result().code == exits.PEER_LOST
        link.connection.close()

    asyncio.run(run())


def test_worker_uses_the_file_if_the_name_does_not_resolve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    heads = Heads(monkeypatch)

    async def run() -> None:
        head, _ = heads.start(HEAD, folder=tmp_path)
        head._announce()
        assert await find(Worker(a_pod(2, heads.port, folder=tmp_path))) == head.generation
        with pytest.raises(OverError, match="does not resolve") as over:
            await find(Worker(a_pod(1, heads.port)))
        assert over.value.code == exits.HEAD_NOT_FOUND

    asyncio.run(run())


@pytest.mark.parametrize("what", ["fifo", "link", "endless", "list", "deep"])
def test_nothing_at_the_place_of_the_file_stops_a_pod(
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

    async def run() -> None:
        with bounded_time(), pytest.raises(OverError, match=r"json cannot be read") as over:
            await find(Worker(a_pod(1, heads.port, folder=tmp_path)))
        assert over.value.code == exits.HEAD_NOT_FOUND
        with bounded_time():
            await Head(a_pod(0, heads.port, folder=tmp_path)).dismiss(0, "")

    asyncio.run(run())
    assert file.lstat()


def test_worker_ignores_another_server_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = Heads(monkeypatch, HEAD)

    async def run() -> None:
        async def web(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        await asyncio.start_server(web, HEAD, heads.port)
        with pytest.raises(OverError, match="leads to") as over:
            await find(Worker(a_pod(1, heads.port)))
        assert over.value.code == exits.HEAD_NOT_FOUND

    asyncio.run(run())
