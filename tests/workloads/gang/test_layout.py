"""Layouts of up to 256 ranks: their groups, nodes and rails; Megatron-Core's own groups; what is refused."""

from __future__ import annotations

import ast
import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from itertools import chain, count, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workloads.stack_outputs import GKE, outputs
from workloads.cli import main
from workloads.exits import Exit, WorkloadError
from workloads.gang.layout import FACTORS, GROUPS, KINDS, Layout, layout_of
from workloads.gang.options import RunOptions
from workloads.run.commands import resolve
from workloads.run.result import RunLayout
from workloads.run.variables import Variables

RANKS = 256
EXPERTS = {"tp": "tp", "ep": "ep", "edp": "dp", "pp": "pp"}
"""Kinds of groups of expert layers, as Megatron-Core's generator for them calls them."""
PAGE = Path(__file__).parents[3] / "docs" / "layouts.md"


@cache
def products() -> list[Layout]:
    """Return every product of sizes on nodes of 1, 2, 4 and 8 ranks, without experts."""
    shapes = [(per_node, nodes) for per_node in (1, 2, 4, 8) for nodes in range(1, RANKS // per_node + 1)]
    return [Layout(nodes, per_node, *sizes) for per_node, nodes in shapes for sizes in factors(nodes * per_node, 4)]


def with_experts(layout: Layout) -> list[Layout]:
    """Return a product with every size of its expert groups, and with one that does not divide cp × dp."""
    shared = layout.cp * layout.dp
    return [replace(layout, ep=ep) for ep in (*divisors(shared), next(ep for ep in count(2) if shared % ep))]


@cache
def divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


@cache
def factors(number: int, length: int) -> list[tuple[int, ...]]:
    if length == 1:
        return [(number,)]
    return [(one, *rest) for one in divisors(number) for rest in factors(number // one, length - 1)]


@cache
def groups(before: int, size: int, after: int) -> Any:
    """Return groups of ranks as rows; `before` and `after` are the products of the faster and the slower sizes."""
    return np.arange(before * size * after).reshape(after, size, before).transpose(0, 2, 1).reshape(-1, size)


@cache
def same_rails(before: int, size: int, after: int, per_node: int) -> bool:
    """Return whether every group has the same local ranks on each of its nodes."""
    rows = groups(before, size, after)
    nodes = len(set((rows[0] // per_node).tolist()))
    if size % nodes:
        return False
    node, local = np.divmod(rows.reshape(len(rows), nodes, -1), per_node)
    one_node = (node == node[:, :, :1]).all() and (np.diff(node[:, :, 0]) > 0).all()
    return bool(one_node and (local == local[:, :1]).all())


def test_a_product_fits_exactly_if_tensor_groups_stay_in_a_node_and_every_group_keeps_its_rails() -> None:
    tried, fitting, compared = 0, [0, 0], set()
    for layout in chain.from_iterable(map(with_experts, products())):
        tp, cp, ep, dp, pp = (getattr(layout, kind) for kind in KINDS)
        ranks, stage, tried = layout.nodes * layout.per_node, tp * cp * dp, tried + 1
        if (cp * dp) % ep:
            assert layout.problem() is not None
            continue
        # Megatron-Core reduces gradients over data and context together.
        shapes = {
            "tp": (1, tp, ranks // tp),
            "cp": (tp, cp, dp * pp),
            "dp": (tp * cp, dp, pp),
            "gradients": (tp, cp * dp, pp),
            "ep": (tp, ep, cp * dp // ep * pp),
            "edp": (tp * ep, cp * dp // ep, pp),
            "pp": (stage, pp, 1),
        }
        fits = within_a_node(tp, ranks, layout.per_node)
        fits = fits and all(same_rails(*shape, layout.per_node) for kind, shape in shapes.items() if kind != "tp")
        assert (layout.problem() is None) == fits, layout
        fitting[ep > 1] += fits
        for kind in GROUPS if fits else ():
            assert (layout.stride(kind), getattr(layout, kind)) == shapes[kind][:2]
            if shapes[kind] not in compared:
                compared.add(shapes[kind])
                assert groups(*shapes[kind]).tolist() == [list(group) for group in layout.groups(kind)], layout
    assert (len(products()), tried, fitting) == (39_872, 225_136, [15_717, 63_116])


@cache
def within_a_node(tp: int, ranks: int, per_node: int) -> bool:
    tensor = groups(1, tp, ranks // tp) // per_node
    return bool((tensor[:, 0] == tensor[:, -1]).all())


def test_megatron_core_forms_the_same_groups() -> None:
    """A part of the products: its generator needs a minute for all of them.

    Expert layers have another one, without context groups (initialize_model_parallel in parallel_state.py, 0.16.1).
    """
    found = megatron()
    compared: dict[tuple[int, ...], dict[str, Any]] = {}

    def theirs(tp: int, cp: int, ep: int, dp: int, pp: int, *kinds: str) -> dict[str, Any]:
        generator = found["RankGenerator"](tp=tp, ep=ep, dp=dp, pp=pp, cp=cp, order=found["order"])
        return {kind: generator.get_ranks(kind) for kind in kinds}

    experts: dict[tuple[int, ...], dict[str, Any]] = {}
    for layout in products():
        large = layout.nodes * layout.per_node > 32
        if layout.problem() or (large and not (layout.per_node == 8 and layout.nodes in (6, 8, 12, 16, 32))):
            continue
        key = (tp, cp, dp, pp) = tuple(getattr(layout, kind) for kind in FACTORS)
        if key in compared:
            continue
        compared[key] = theirs(tp, cp, 1, dp, pp, *FACTORS)
        assert {kind: list(map(list, layout.groups(kind))) for kind in FACTORS} == compared[key], layout
        for expert in with_experts(layout):
            if expert.problem() is None:
                key = (tp, expert.ep, cp * dp // expert.ep, pp)
                if key not in experts:
                    experts[key] = theirs(tp, 1, *key[1:], "tp", "ep", "dp", "pp")
                ours = {kind: list(map(list, expert.groups(name))) for name, kind in EXPERTS.items()}
                assert ours == experts[key], expert
    assert (len(compared), len(experts)) == (953, 953)


def megatron() -> dict[str, Any]:
    """Return Megatron-Core's RankGenerator, and its default order, without the seconds that its import takes."""
    found = find_spec("megatron.core")
    assert found is not None
    assert found.origin is not None
    tree = ast.parse(Path(found.origin).with_name("parallel_state.py").read_text())
    [start] = [one for one in tree.body if getattr(one, "name", "") == "initialize_model_parallel"]
    assert isinstance(start, ast.FunctionDef)
    defaults = dict(zip([one.arg for one in start.args.args], start.args.defaults, strict=True))
    wanted = ("RankGenerator", "generate_masked_orthogonal_rank_groups")
    names: dict[str, Any] = {"order": ast.literal_eval(defaults["order"])}
    body: list[ast.stmt] = [one for one in tree.body if getattr(one, "name", "") in wanted]
    header = ast.parse("from typing import List").body
    exec(compile(ast.Module([*header, *body], []), found.origin, "exec"), names)
    return names


def test_refusals_name_the_nearest_sizes_that_fit() -> None:
    """Nodes of 8, at most 6 of them."""
    for written, says in {
        "--nodes 4 --tp 16": "a tensor group stays within a node, but the run has 32 ranks, 8 per node: use --tp 8",
        "--nodes 4 --tp 8 --pp 3": "24 does not divide the run's 32 ranks, 8 per node: use --pp 4, or --nodes 3",
        "--nodes 4 --tp 2 --dp 3": "6 is not the run's 32 ranks, 8 per node: use --dp 16, or --dp 4 --pp 4",
        "--nodes 3 --tp 2 --cp 3": "a context group has 6 ranks, which neither divide a node's 8 nor fill nodes",
        "--nodes 3 --pp 2": "a stage of the pipeline has 12 ranks, which neither divide a node's 8 nor fill nodes",
        "--nodes 1 --per-node 1 --tp 2": "use --tp 1, or --per-node 2, or --per-node 4",
        "--nodes 4 --tp 4 --cp 2 --ep 16": "16 does not divide 2 × 4: use --tp 2, or --ep 8",
        "--nodes 3 --tp 2 --ep 6": "an expert group has 12 ranks, which neither divide a node's 8 nor fill nodes",
    }.items():
        words = written.split()
        values = {name[2:].replace("-", "_"): int(value) for name, value in zip(words[::2], words[1::2], strict=True)}
        with pytest.raises(WorkloadError) as refused:
            declared(values)
        assert says in str(refused.value)


def declared(values: dict[str, int]) -> Layout | None:
    options = RunOptions.model_validate(values)
    return layout_of(options.sizes, options.nodes or 1, options.per_node or 8, (6, 8))


def test_every_alternative_fits() -> None:
    refusals = []
    for nodes, tp, cp, pp, dp, ep in product((1, 3, 4), (1, 2, 3, 16), (1, 3), (1, 2, 5), (None, 1, 6), (None, 5, 8)):
        optional = {name: size for name, size in (("dp", dp), ("ep", ep)) if size is not None}
        values = {"nodes": nodes, "tp": tp, "cp": cp, "pp": pp} | optional
        try:
            declared(values)
        except WorkloadError as error:
            refusals.append((values, str(error)))
    assert len(refusals) > 300
    for values, said in refusals:
        for advice in said.rpartition(": use ")[2].split(", or "):
            names, numbers = advice.split()[::2], map(int, advice.split()[1::2])
            changes = dict(zip([name[2:].replace("-", "_") for name in names], numbers, strict=True))
            assert changes, said
            assert declared(values | changes) is not None, said


def test_the_table_has_the_groups_and_the_stages_in_few_lines() -> None:
    assert Layout(32, 8, tp=4, cp=2, dp=4, pp=8).table().splitlines() == [
        "layout: tp 4 × cp 2 × dp 4 × pp 8 = 256 ranks, 8 per node",
        "  groups    number  size  nodes  first group       its rails",
        "  tensor        64     4      1  0-3               within a node",
        "  context      128     2      1  0, 4              within a node",
        "  data          64     4      4  0, 8, …, 24       0",
        "  pipeline      32     8      8  0, 32, …, 224     0",
        "  stage 0 on nodes 0-3: ranks 0-31",
        "  stage 1 on nodes 4-7: ranks 32-63",
        "  …",
        "  stage 7 on nodes 28-31: ranks 224-255",
    ]
    assert Layout(2, 8, tp=2, cp=1, dp=8, pp=1).table().splitlines()[-2:] == [
        "  data           2     8      2  0, 2, …, 14       0, 2, …, 6",
        "  nodes 0-1: ranks 0-15",
    ]
    assert Layout(1, 8, tp=2, cp=1, dp=1, pp=4).table().splitlines()[-1] == "  stages 0-3 on node 0: ranks 0-7"
    assert Layout(4, 8, tp=2, cp=2, dp=4, pp=2, ep=4).table().splitlines()[:-3] == [
        "layout: tp 2 × cp 2 × dp 4 × pp 2 = 32 ranks, 8 per node; experts: ep 4 × edp 2",
        "  groups    number  size  nodes  first group       its rails",
        "  tensor        16     2      1  0, 1              within a node",
        "  context       16     2      1  0, 2              within a node",
        "  data           8     4      2  0, 4, …, 12       0, 4",
        "  expert         8     4      1  0, 2, …, 6        within a node",
        "  expert dp     16     2      2  0, 8              0",
    ]


@pytest.fixture
def rdma_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The command line in a user's folder, with a stack of at most 32 nodes of eight GPUs."""
    (tmp_path / "outputs.json").write_text(json.dumps(GKE | {"nodes": GKE["nodes"] | {"max": 32}}))
    monkeypatch.setenv("RDMA_RAY_OUTPUTS", str(tmp_path / "outputs.json"))
    (folder := tmp_path / "gpt").mkdir()
    monkeypatch.chdir(folder)
    return lambda *arguments: main(["run", *arguments])


def test_one_declaration_reaches_the_command_and_its_variables(
    rdma_ray: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    command = "--tensor-model-parallel-size {tp} --pp={pp} --data {dp} {xp} {cp}x --experts {ep}"
    options = shlex.split(f"--dry-run --nodes 4 --tp 4 --pp 2 --ep 2 --env A=1 -- torchrun pretrain.py {command}")
    assert rdma_ray("--json", "-", *options) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert shlex.join(found["command"][2:]) == "--tensor-model-parallel-size 4 --pp=2 --data 4 '{xp}' 1x --experts 2"
    assert found["variables"] == ["A", *(f"RDMA_RAY_{kind}" for kind in ("CP", "DP", "EP", "PP", "TP"))]
    layout = RunLayout.model_validate(found["layout"])
    assert (layout.tp, layout.cp, layout.ep, layout.dp, layout.pp) == (4, 1, 2, 4, 2)
    assert layout.groups["dp"][1] == [1, 5, 9, 13]
    assert (layout.groups["ep"][1], layout.groups["edp"][1]) == ([1, 5], [1, 9])
    assert rdma_ray(*options) == Exit.OK
    assert "  data           8     4      2  0, 4, …, 12       0, 4\n" in capsys.readouterr().out


def test_a_command_without_a_layout_keeps_its_braces() -> None:
    found = resolve(("python", "{tp}"), RunOptions(nodes=1), Variables({}, {}), outputs())
    assert (found.command, found.environment, found.layout) == (("python", "{tp}"), {}, None)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--tp 2 -- python a.py", "--tp 2: without --nodes the command runs once on the head: add --nodes 1"),
        ("--dp 1 -- python a.py", "--dp 1: without --nodes"),
        ("--ep 1 -- python a.py", "--ep 1: without --nodes"),
        ("--nodes 2 --tp 0 -- a", "--tp 0: input should be greater than or equal to 1"),
        ("--nodes 2 --env RDMA_RAY_TP=4 -- a", "RDMA_RAY_TP is protected"),
        ("--nodes 33 --tp 8 -- a", "--nodes 33: the stack has at most 32"),
        ("--tp 8 -- torchrun --nproc-per-node 4 a.py", "--tp 8: 8 does not divide the run's 4 ranks"),
    ],
)
def test_conflicts_are_refused(
    rdma_ray: Callable[..., int], capsys: pytest.CaptureFixture[str], arguments: str, says: str
) -> None:
    assert rdma_ray(*arguments.split()) == Exit.ERROR
    assert says in capsys.readouterr().err


def test_the_page_shows_what_is_printed(rdma_ray: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """Every dry run and every refusal of docs/layouts.md, torchtitan's among them."""
    shown = 0
    for block in PAGE.read_text().split("```")[1::2]:
        for example in block.replace("\\\n", "").split("\n$ rdma-ray run ")[1:]:
            command, *lines = example.strip().splitlines()
            if "--per-node" not in command:  # else on a cluster
                rdma_ray(*shlex.split(command))
                said = "".join(capsys.readouterr()).splitlines()
                assert [one for one in said if not one.startswith("upload")] == [
                    one for one in lines if not one.startswith("upload")
                ]
                shown += 1
    assert shown == 7
