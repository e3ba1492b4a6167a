"""Data of a training run: the same global batches for any number of ranks, any start and any kind; clear errors."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pyarrow import parquet
from pydantic import ValidationError

from tests.workloads.conftest import ROOT
from workloads.exits import WorkloadError
from workloads.train.data.items import ImageFolder, ParquetTensors, crop_box, cropped, read
from workloads.train.data.loader import FakeData, normalized, source
from workloads.train.data.source import DataOptions, Order, Share, Source

CPU = torch.device("cpu")
SIDE = 32


def share(rank: int = 0, world: int = 1, first: int = 0, steps: int = 6, batch: int = 7, seed: int = 3) -> Share:
    return Share(rank, world, first, steps, batch, seed)


def config(kind: str, **changes: Any) -> DataOptions:
    settings: dict[str, Any] = {"data": kind, "image": SIDE, "classes": 3, "loader": 0, "items": 20}
    return DataOptions(**settings | changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of six pictures, whose colors identify them."""
    root = tmp_path_factory.mktemp("pictures")
    for label, name in enumerate(("ant", "bee", "cow")):
        (root / name).mkdir()
        for number in range(6):
            pixels = np.full((40 + number, 50, 3), [80 * label, 40 * number, 200], dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number}.png")
    return root


@pytest.fixture(scope="module")
def tensors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of ten images in groups of four; image number i is full of i."""
    root = tmp_path_factory.mktemp("tensors")
    for file in range(2):
        numbers = range(10 * file, 10 * file + 10)
        images = pa.array([[i] * (3 * SIDE * SIDE) for i in numbers], pa.list_(pa.uint8()))
        table = pa.table({"image": images, "label": pa.array([i % 3 for i in numbers])})
        parquet.write_table(table, root / f"part-{file}.parquet", row_group_size=4)
    return root


@given(
    items=st.integers(1, 200), batch=st.integers(1, 50), seed=st.integers(0, 9), shuffle=st.booleans(), data=st.data()
)
def test_an_epoch_has_each_item_at_most_once(
    items: int, batch: int, seed: int, shuffle: bool, data: st.DataObject
) -> None:
    if batch > items:
        with pytest.raises(WorkloadError, match=f"the data set has {items}"):
            Order(items, batch, seed, shuffle=shuffle).epoch_steps  # noqa: B018
        return
    order = Order(items, batch, seed, shuffle=shuffle)
    epoch = data.draw(st.integers(0, 3))
    steps = range(epoch * order.epoch_steps, (epoch + 1) * order.epoch_steps)
    seen = np.concatenate([order.rows(step) for step in steps])
    assert len(set(seen.tolist())) == len(seen) == items // batch * batch
    assert 0 <= seen.min() <= seen.max() < items
    # Another object, called in another order, returns the same.
    again = Order(items, batch, seed, shuffle=shuffle)
    assert np.array_equal(again.rows(steps[-1]), order.rows(steps[-1]))
    assert np.array_equal(again.rows(steps[0]), order.rows(steps[0]))


def test_the_first_items_fill_up_the_last_batch_of_an_epoch() -> None:
    order = Order(10, 4, 0, drop_last=False)
    rows = np.concatenate([order.rows(step) for step in range(order.epoch_steps)]).tolist()
    assert sorted(rows[:10]) == list(range(10))
    assert rows[10:] == rows[:2]
    assert len(set(Order(3, 8, 0, drop_last=False).rows(1).tolist())) == 3


def test_epochs_are_shuffled_differently() -> None:
    order = Order(100, 100, 0, shuffle=True)
    assert not np.array_equal(order.rows(0), order.rows(1))
    assert not np.array_equal(order.rows(0), Order(100, 100, 1, shuffle=True).rows(0))


def batches(found: Source, part: Share) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(found.batches(part, CPU))


@pytest.fixture(params=["synthetic", "fakedata", "imagefolder"])
def any_kind(request: pytest.FixtureRequest, folder: Path) -> DataOptions:
    return config(request.param, data_path=str(folder))


def test_the_global_batch_does_not_depend_on_the_cut_or_the_start(any_kind: DataOptions) -> None:
    whole = batches(source(any_kind), share())
    assert len(whole) == 6
    assert whole[0][0].shape == (7, 3, SIDE, SIDE)
    assert (whole[0][0].dtype, whole[0][1].dtype) == (torch.float32, torch.int64)
    for world in (2, 3):
        cut = [batches(source(any_kind), share(rank, world)) for rank in range(world)]
        for step in range(6):
            assert torch.equal(torch.cat([parts[step][0] for parts in cut]), whole[step][0])
            assert torch.equal(torch.cat([parts[step][1] for parts in cut]), whole[step][1])
    late = batches(source(any_kind), share(first=4))
    assert len(late) == 2
    assert all(torch.equal(images, whole[4 + i][0]) for i, (images, _) in enumerate(late))
    other = batches(source(any_kind), share(seed=4))
    if any_kind.data != "fakedata":  # its items depend on their index only
        assert not torch.equal(other[0][0], whole[0][0])


def test_synthetic_images_alternate_in_a_pool() -> None:
    found = batches(source(config("synthetic", pool=2)), share(steps=4, batch=64))
    assert found[0][0] is found[2][0]
    assert not torch.equal(found[0][0], found[1][0])
    assert found[0][0].mean().abs() < 0.02
    assert (found[0][0].std() - 1).abs() < 0.02
    assert set(found[0][1].tolist()) == {0, 1, 2}


@pytest.mark.parametrize("kind", ["synthetic", "fakedata", "imagefolder"])
def test_images_have_the_requested_memory_format(kind: str, folder: Path) -> None:
    images, _ = next(source(config(kind, data_path=str(folder), channels_last=True)).batches(share(), CPU))
    assert images.is_contiguous(memory_format=torch.channels_last)
    images, _ = next(source(config(kind, data_path=str(folder))).batches(share(), CPU))
    assert images.is_contiguous()


def test_fakedata_is_torchvisions_bit_for_bit() -> None:
    torchvision = pytest.importorskip("torchvision")
    transforms = torchvision.transforms
    theirs = torchvision.datasets.FakeData(
        size=9,
        image_size=(3, SIDE, SIDE),
        num_classes=1000,
        transform=transforms.Compose(
            [
                transforms.ToTensor(),
                transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        ),
    )
    ours = FakeData(9, SIDE, 1000)
    for index in range(9):
        image, label = ours[0, 0, index]
        expected, expected_label = theirs[index]
        assert torch.equal(torch.from_numpy(image), expected)
        assert label == int(expected_label)


def test_fakedata_comes_unshuffled_from_loader_processes() -> None:
    inside = batches(source(config("fakedata")), share(steps=2))
    processes = batches(source(config("fakedata", loader=2)), share(steps=2))
    for (images, labels), (others, other_labels) in zip(inside, processes, strict=True):
        assert torch.equal(images, others)
        assert torch.equal(labels, other_labels)
    assert np.array_equal(inside[1][0][0].numpy(), FakeData(20, SIDE, 3)[0, 0, 7][0])


def test_an_image_folder_labels_every_picture(folder: Path) -> None:
    found = ImageFolder(str(folder), SIDE, 3)
    assert len(found) == 18
    for index in range(18):
        image, label = found[0, 0, index]
        assert image.dtype == np.uint8
        assert image[:, 5, 5].tolist() == [80 * label, 40 * (index % 6), 200]
        assert label == index // 6


def test_crops_differ_by_epoch_and_stay_inside(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (60, 90, 3), dtype=np.uint8)
    (tmp_path / "only").mkdir()
    Image.fromarray(noise).save(tmp_path / "only" / "noise.png")
    found = ImageFolder(str(tmp_path), SIDE, 1)
    first, again, other = (found[0, epoch, 0][0] for epoch in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@given(width=st.integers(1, 500), height=st.integers(1, 500), seed=st.integers(0, 1000))
def test_a_crop_is_inside_the_picture(width: int, height: int, seed: int) -> None:
    left, top, w, h = crop_box(width, height, np.random.default_rng(seed))
    assert left >= 0
    assert top >= 0
    assert 0 < w <= width - left
    assert 0 < h <= height - top


def test_half_of_the_crops_are_mirrored() -> None:
    ramp = np.repeat(np.arange(0, 256, 4, dtype=np.uint8)[None, :, None], 64, axis=0).repeat(3, axis=2)
    rises = [
        (found := cropped(Image.fromarray(ramp), SIDE, np.random.default_rng(seed)))[0, 5, -1] > found[0, 5, 0]
        for seed in range(200)
    ]
    assert 70 < sum(rises) < 130


def test_normalized_is_totensor_and_normalize() -> None:
    images = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 2, 2)
    found = normalized(images)
    assert found[0, :, 0, 0].tolist() == pytest.approx([-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225])
    assert found[1, :, 0, 0].tolist() == pytest.approx([0.515 / 0.229, 0.544 / 0.224, 0.594 / 0.225])


def test_parquet_tensors_are_one_data_set(tensors: Path) -> None:
    found = ParquetTensors(str(tensors), SIDE, 3)
    assert len(found) == 20
    for index in (0, 3, 4, 9, 10, 19, 2):
        image, label = found[0, 0, index]
        assert image.shape == (3, SIDE, SIDE)
        assert set(image.flatten().tolist()) == {index}
        assert label == index % 3


def test_parquet_of_encoded_pictures(tmp_path: Path, folder: Path) -> None:
    files = sorted(folder.rglob("*.png"))
    table = pa.table({"image": [file.read_bytes() for file in files], "label": [i // 6 for i in range(18)]})
    parquet.write_table(table, tmp_path / "all.parquet")
    image, label = ParquetTensors(str(tmp_path), SIDE, 3)[0, 0, 8]
    assert (image[:, 3, 3].tolist(), label) == ([80, 80, 200], 1)


def test_ray_data_tasks_do_not_import_torch() -> None:
    """Each task is a process, and importing torch takes longer than an epoch of small data."""
    code = "import sys, workloads.train.data.items; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_ray_data_task_reads_its_rows(tensors: Path) -> None:
    """Call the task's function on the rows of each rank; test_train_convnext_cluster.py runs the whole pipeline."""
    order, items = Order(20, 7, 3), ParquetTensors(str(tensors), SIDE, 3)
    cut = [read({"data": order.draws(3)[share(rank, 3).rows]}, items) for rank in range(3)]
    assert np.concatenate([part["image"] for part in cut])[:, 0, 0, 0].tolist() == order.rows(3).tolist()
    # Step 3 of 2 a pass is in the second one.
    assert [set(column) for column in order.draws(3).T[:2].tolist()] == [{3}, {1}]


def wrong(problem: str, path: str, classes: int = 3, kind: str = "imagefolder") -> None:
    with pytest.raises(WorkloadError, match=problem):
        source(config(kind, data_path=path, classes=classes)).order(1, 0)


def test_missing_data_is_named(tmp_path: Path, folder: Path, tensors: Path) -> None:
    wrong("--data-path /nowhere: no such folder on node", "/nowhere")
    wrong("it has no class folders", str(tmp_path))
    wrong("3 class folders, and the model has 1000 classes.*--set classes=3", str(folder), 1000)
    (tmp_path / "empty").mkdir()
    wrong("class folder empty has no images", str(tmp_path), 1)
    wrong("--data-path /nowhere: no such folder", "/nowhere", kind="ray")
    parquet.write_table(pa.table({"picture": [1]}), tmp_path / "odd.parquet")
    wrong("odd.parquet: no column image, label", str(tmp_path), kind="ray")
    with pytest.raises(WorkloadError, match=r"label 2, and the model has 2 classes"):
        ParquetTensors(str(tensors), SIDE, 2)[0, 0, 2]
    with pytest.raises(
        WorkloadError, match=r"an image of 3072 bytes, not 3 · 64 · 64; set its side by --set image=SIDE"
    ):
        ParquetTensors(str(tensors), 64, 3)[0, 0, 2]


def test_a_broken_picture_is_named(tmp_path: Path) -> None:
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "torn.jpg").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(WorkloadError, match=r"cannot read the image .*torn\.jpg.*repair or remove it"):
        ImageFolder(str(tmp_path), SIDE, 1)[0, 0, 0]


def test_unknown_kinds_and_missing_paths_are_rejected() -> None:
    with pytest.raises(ValidationError, match=r"'synthetic', 'fakedata', 'imagefolder' or 'ray'"):
        config("cifar")
    with pytest.raises(ValidationError, match=r"--data ray: name the folder of the images by --data-path"):
        config("ray")


def test_an_epoch_without_end_of_a_run_is_read_lazily() -> None:
    found = source(config("synthetic", items=10**9)).batches(share(steps=10**9), CPU)
    assert len(list(islice(found, 3))) == 3
