"""The provider protocol, over gRPC as the engine uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2, status_pb2

from rehearsal.engine.kind import COPY, Call, Cloud, Json, Refusal, ResourceKind
from rehearsal.engine.values import UNKNOWN, from_wire, to_wire
from tests.rehearsal.protocol import Client, served

BOX, PARCEL, TOKEN, SPARE = (f"random:test:{name}" for name in ("Box", "Parcel", "Token", "Spare"))


def _too_heavy(call: Call) -> Refusal | None:
    if call.verb != "delete" and call.inputs.get("weight", 0) > 10:
        return Refusal("400 invalid", "too heavy", "these tests, 2026-11")
    return None


def _in_use(call: Call) -> Refusal | None:
    kept = call.verb == "delete" and call.live.get("protected")
    return Refusal("400 inUse", "protected", "these tests, 2026-11") if kept else None


def _computed(call: Call) -> Json:
    if call.inputs.get("broken"):
        raise KeyError("a mistake in a kind")
    return {"link": f"https://{call.config.get('host')}/{call.id}", "changes": call.live.get("changes", 0) + 1}


CLOUD = Cloud(
    package="random",
    kinds={
        BOX: ResourceKind(
            type=BOX,
            identify=lambda inputs, _config: str(inputs["name"]),
            compute=_computed,
            computed=frozenset({"size"}),
            replace_on=frozenset({"name", "lid.colour"}),
            maps=frozenset({"labels"}),
            rules=(_too_heavy, _in_use),
            cascade=lambda call, type_, live: type_ == PARCEL and live.get("box") == call.id,
            awaited=True,
        ),
        PARCEL: ResourceKind(type=PARCEL, identify=lambda inputs, _config: str(inputs["name"])),
        SPARE: ResourceKind(
            type=SPARE, identify=lambda inputs, _config: f"s-{inputs['size']}-{inputs.get(COPY, 1)}", generated_ids=True
        ),
        TOKEN: ResourceKind(
            type=TOKEN,
            identify=lambda _inputs, _config: "none",
            compute=lambda call: {"result": call.live.get("result", "drawn")},
            remembered=False,
        ),
    },
    functions={"random:test:boxes": lambda arguments, _config, state: {"n": len(list(state.all(BOX))), **arguments}},
    reaches=lambda config, _state: None if config.get("host") else Refusal("unreachable", "no host", "tests, 2026-11"),
    replace_on=frozenset({"host"}),
    failures={"429": Refusal("429 Throttling", "slow down", "these tests, 2026-11")},
)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A client of this file's cloud."""
    with served(CLOUD, tmp_path / "clouds.sqlite", {"host": "example.com"}) as found:
        yield found


def refused(request: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """Make a request that fails; return the message that the engine would print."""
    with pytest.raises(grpc.RpcError) as problem:
        request(*arguments, **options)
    return str(problem.value.details())


def test_plugin_reports_sdk_version(client: Client) -> None:
    assert client.stub.GetPluginInfo(empty_pb2.Empty()).version == version("pulumi-random")
    assert not client.stub.Handshake(provider_pb2.ProviderHandshakeRequest()).accept_secrets
    client.stub.Cancel(empty_pb2.Empty())


def test_resource_create_update_delete(client: Client) -> None:
    inputs = {"name": "a", "weight": 1}
    id_, outputs = client.create(BOX, inputs)
    assert (id_, outputs) == ("a", {**inputs, "link": "https://example.com/a", "changes": 1})
    assert client.read(BOX, id_, inputs) == (inputs, outputs)
    later = client.update(BOX, id_, inputs, {"name": "a", "weight": 2})
    assert (later["weight"], later["changes"]) == (2, 2)
    client.delete(BOX, id_, {"name": "a", "weight": 2})
    assert client.read(BOX, id_, inputs) is None
    client.delete(BOX, id_, inputs)
    assert client.outcomes() == ["done"] * 4


def test_preview_sends_no_request(client: Client) -> None:
    assert client.create(BOX, {"name": UNKNOWN, "weight": 99}, preview=True) == ("", {"name": UNKNOWN, "weight": 99})
    assert client.update(BOX, "nowhere", {}, {"weight": 99}, preview=True) == {"weight": 99}
    # Computed outputs stay known, also inside a block that the program sets.
    before, olds = {"block": {"set": 1}}, {"block": {"set": 1, "computed": 2}, "computed": 3}
    planned = client.update(BOX, "nowhere", before, {**before, "weight": UNKNOWN}, preview=True, olds=olds)
    assert planned == {**olds, "weight": UNKNOWN}
    assert client.outcomes() == []


def test_duplicate_name_is_a_conflict(client: Client) -> None:
    client.create(BOX, {"name": "a"})
    said = refused(client.create, BOX, {"name": "a"}, urn="urn:b")
    assert said == "REHEARSAL: 409 alreadyExists: The resource 'a' already exists"
    assert client.live(BOX, "a") is not None


def test_generated_ids_allow_identical_objects(client: Client) -> None:
    made = [client.create(SPARE, {"size": 1}, urn=f"urn:{number}")[0] for number in range(3)]
    assert made == ["s-1-1", "s-1-2", "s-1-3"]
    client.delete(SPARE, "s-1-1", {"size": 1})
    assert client.create(SPARE, {"size": 1})[0] == "s-1-1"
    assert (client.live(SPARE, "s-1-2") or {}).keys() == {"size"}


def test_cloud_overrides_failure_messages(client: Client) -> None:
    client.order("random:test:Box create 429")
    assert refused(client.create, BOX, {"name": "a"}) == "REHEARSAL: 429 Throttling: slow down"


def test_refusal_changes_nothing_and_is_recorded(client: Client) -> None:
    said = "REHEARSAL: 400 invalid: too heavy"
    assert refused(client.create, BOX, {"name": "a", "weight": 11}) == said
    assert client.live(BOX, "a") is None
    client.create(BOX, {"name": "a", "weight": 1})
    assert refused(client.update, BOX, "a", {"name": "a", "weight": 1}, {"name": "a", "weight": 12})
    live = client.live(BOX, "a")
    assert live is not None
    assert live["weight"] == 1
    assert client.outcomes() == [said, "done", said]


def test_exception_in_kind_is_recorded_as_failed(client: Client) -> None:
    assert refused(client.create, BOX, {"name": "a", "broken": True})
    assert client.live(BOX, "a") is None
    assert client.outcomes() == ["'a mistake in a kind'"]


def test_delete_is_refused_or_cascades(client: Client) -> None:
    client.create(BOX, {"name": "a"})
    for name, box in (("p", "a"), ("q", "b")):
        client.create(PARCEL, {"name": name, "box": box})
    client.delete(BOX, "a", {"name": "a"})
    assert client.live(PARCEL, "p") is None
    assert client.live(PARCEL, "q") is not None
    client.create(BOX, {"name": "b", "protected": True})
    assert "protected" in refused(client.delete, BOX, "b", {"name": "b"})
    assert client.live(BOX, "b") is not None


def test_unremembered_kinds_are_only_in_state(client: Client) -> None:
    assert client.create(TOKEN, {"length": 3}) == ("none", {"length": 3, "result": "drawn"})
    assert client.create(TOKEN, {"length": 3})[0] == "none"
    assert client.read(TOKEN, "none", {"length": 3}) == ({"length": 3}, {"length": 3})
    assert client.update(TOKEN, "none", {}, {"length": 4}, olds={"result": "old"}) == {"length": 4, "result": "old"}


def test_refresh_shows_drift_of_set_properties(client: Client) -> None:
    inputs = {"name": "a", "weight": 1, "labels": {"mine": "x"}}
    _, outputs = client.create(BOX, inputs)
    with client.state.transaction() as view:
        view.put(BOX, "a", {**outputs, "weight": 5, "other": 1, "labels": {"mine": "x", "theirs": "y"}})
    found = client.read(BOX, "a", inputs)
    assert found is not None
    assert found[0] == {"name": "a", "weight": 5, "labels": {"mine": "x", "theirs": "y"}}
    assert found[1]["other"] == 1


def test_update_keeps_additions_and_drops_removed_inputs(client: Client) -> None:
    inputs = {"name": "a", "weight": 1, "labels": {"mine": "x"}}
    _, outputs = client.create(BOX, inputs)
    with client.state.transaction() as view:
        view.put(BOX, "a", {**outputs, "labels": {"mine": "x", "theirs": "y"}})
    later = client.update(BOX, "a", inputs, {"name": "a", "labels": {}})
    assert later["labels"] == {"theirs": "y"}
    assert "weight" not in later
    assert "404" in refused(client.update, BOX, "gone", inputs, inputs)


def test_diff_lists_replacing_properties(client: Client) -> None:
    before = {"name": "a", "weight": 1, "lid": [{"colour": "red"}], "tags": {"a/b": 1}}
    assert client.diff(BOX, before, before).changes == provider_pb2.DiffResponse.DIFF_NONE
    light = client.diff(BOX, before, {**before, "weight": 2, "tags": {}})
    assert light.changes == provider_pb2.DiffResponse.DIFF_SOME
    assert set(light.detailedDiff) == {"weight", 'tags["a/b"]'}
    assert list(light.replaces) == []
    assert not light.deleteBeforeReplace
    heavy = client.diff(BOX, before, {**before, "lid": [{"colour": "blue"}]})
    assert list(heavy.replaces) == ["lid"]
    assert heavy.deleteBeforeReplace
    assert heavy.detailedDiff["lid[0].colour"].kind == provider_pb2.PropertyDiff.Kind.UPDATE_REPLACE
    assert client.stub.DiffConfig(
        provider_pb2.DiffRequest(old_inputs=to_wire({"host": "a"}), news=to_wire({"host": "b"}))
    ).replaces == ["host"]


def test_new_input_with_the_value_of_the_cloud_is_no_difference(client: Client) -> None:
    def changes(now: Json) -> list[str]:
        request = provider_pb2.DiffRequest(
            id="a",
            urn="urn:a",
            type=BOX,
            old_inputs=to_wire({"name": "a"}),
            olds=to_wire({"name": "a", "size": "1.35"}),
        )
        request.news.CopyFrom(to_wire({"name": "a", **now}))
        return list(client.stub.Diff(request).diffs)

    assert (changes({"size": "1.35"}), changes({"size": "1.36"}), changes({"other": 1})) == ([], ["size"], ["other"])


@pytest.mark.parametrize(
    ("block", "replaced"), [([{"colour": "red"}], ["lid"]), ([{"hinges": 2}], []), (UNKNOWN, ["lid"])]
)
def test_block_that_comes_or_goes_replaces_if_it_gives_a_replacing_property(
    client: Client, block: object, replaced: list[str]
) -> None:
    assert list(client.diff(BOX, {"name": "a"}, {"name": "a", "lid": block}).replaces) == replaced
    assert list(client.diff(BOX, {"name": "a", "lid": block}, {"name": "a"}).replaces) == replaced


def test_unknown_kinds_and_functions_are_reported(client: Client) -> None:
    check, invoke = provider_pb2.CheckRequest(type="random:test:No"), provider_pb2.InvokeRequest(tok="random:test:no")
    assert "has no kind random:test:No" in refused(client.stub.Check, check)
    assert "no function random:test:no" in refused(client.stub.Invoke, invoke)
    client.create(BOX, {"name": "a"})
    response = client.stub.Invoke(provider_pb2.InvokeRequest(tok="random:test:boxes", args=to_wire({"x": 1})))
    assert from_wire(getattr(response, "return")) == {"n": 1, "x": 1}


def test_unreachable_api_is_reported(client: Client) -> None:
    client.stub.Configure(provider_pb2.ConfigureRequest(args=to_wire({})))
    for attempt in (lambda: client.create(BOX, {"name": "a"}), lambda: client.read(BOX, "a", {})):
        assert refused(attempt) == "REHEARSAL: unreachable: no host"


@pytest.mark.parametrize(
    ("how", "says"), [("stockout", "stockout"), ("quota", "quota"), ("429", "429"), ("500", "500")]
)
def test_fault_is_injected_once(client: Client, how: str, says: str) -> None:
    client.order(f"{BOX} create {how}")
    client.create(PARCEL, {"name": "p"})
    assert says in refused(client.create, BOX, {"name": "a"})
    assert client.live(BOX, "a") is None
    client.create(BOX, {"name": "a"})


def test_resource_stays_in_state_after_timeout(client: Client) -> None:
    client.order(f"{BOX} create timeout")
    with pytest.raises(grpc.RpcError) as problem:
        client.create(BOX, {"name": "a"})
    details = [each.value for each in problem.value.trailing_metadata() if each.key == "grpc-status-details-bin"]
    assert isinstance(details[0], bytes)
    status = status_pb2.Status.FromString(details[0])
    failed = provider_pb2.ErrorResourceInitFailed()
    assert status.details[0].Unpack(failed)
    assert failed.id == "a"
    assert from_wire(failed.properties)["link"] == "https://example.com/a"
    assert client.live(BOX, "a") is not None
    assert "timeout while waiting" in client.outcomes()[0]


def test_unawaited_resource_is_not_kept_after_timeout(client: Client) -> None:
    client.order(f"{PARCEL} create timeout", f"{BOX} delete timeout")
    assert refused(client.create, PARCEL, {"name": "p"})
    assert client.live(PARCEL, "p") is None
    client.create(BOX, {"name": "a"})
    assert refused(client.delete, BOX, "a", {})
    assert client.live(BOX, "a") is not None
