"""Data of a training run: the same global batches for any number of ranks, any start and any kind; clear errors."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
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
from torchvision import transforms
from torchvision.datasets import FakeData

from tests.workloads.conftest import ROOT
from workloads.exits import WorkloadError
from workloads.train.data.feed import Feed
from workloads.train.data.items import ParquetImages, decoded, image_folder, read
from workloads.train.data.loader import source
from workloads.train.data.source import DataOptions, Order, RankShare, TrainingData

CPU = torch.device("cpu")
SIDE = 32


def share(rank: int = 0, world: int = 1, first: int = 0, steps: int = 6, batch: int = 7, seed: int = 3) -> RankShare:
    return RankShare(rank, world, first, steps, batch, seed)


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
        images = pa.array([np.full(3 * SIDE**2, i, np.uint8) for i in numbers], pa.list_(pa.uint8()))
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
        with pytest.raises(WorkloadError, match=f"the data has {items} samples"):
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
    for step in (steps[-1], steps[0]):
        assert np.array_equal(again.rows(step), order.rows(step))


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


same = partial(torch.testing.assert_close, rtol=0, atol=0)
"""Compares tensors bit for bit."""


def batches(found: TrainingData, part: RankShare) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(Feed(found.batches(part, CPU), CPU, torch.contiguous_format))


@pytest.mark.parametrize("kind", ["synthetic", "fakedata", "imagefolder"])
def test_the_global_batch_does_not_depend_on_the_cut_or_the_start(kind: str, folder: Path) -> None:
    found = source(config(kind, data_path=str(folder)))
    whole = batches(found, share())
    assert len(whole) == 6
    assert whole[0][0].shape == (7, 3, SIDE, SIDE)
    assert (whole[0][0].dtype, whole[0][1].dtype) == (torch.float32, torch.int64)
    for world in (2, 3):
        cut = zip(*(batches(found, share(rank, world)) for rank in range(world)), strict=True)
        for parts, (images, labels) in zip(cut, whole, strict=True):
            assert torch.equal(torch.cat([part[0] for part in parts]), images)
            assert torch.equal(torch.cat([part[1] for part in parts]), labels)
    same(batches(found, share(first=4)), whole[4:])
    if kind != "fakedata":  # its items depend on their index only
        assert not torch.equal(batches(found, share(seed=4))[0][0], whole[0][0])


def test_synthetic_images_alternate_in_a_pool() -> None:
    found = batches(source(config("synthetic", pool=2)), share(steps=4, batch=64))
    assert found[0][0] is found[2][0]
    assert not torch.equal(found[0][0], found[1][0])
    assert found[0][0].mean().abs() < 0.02
    assert (found[0][0].std() - 1).abs() < 0.02
    assert set(found[0][1].tolist()) == {0, 1, 2}


def test_fakedata_is_the_published_trainers_and_comes_unshuffled_from_loader_processes() -> None:
    normalize = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    transform = transforms.Compose([transforms.ToTensor(), normalize])
    theirs = FakeData(20, image_size=(3, SIDE, SIDE), num_classes=3, transform=transform)
    inside = batches(source(config("fakedata")), share(steps=2))
    same(batches(source(config("fakedata", loader=2)), share(steps=2)), inside)
    for index in range(14):
        images, labels = inside[index // 7]
        same((images[index % 7], int(labels[index % 7])), (theirs[index][0], int(theirs[index][1])))


def test_an_image_folder_labels_every_picture(folder: Path) -> None:
    found = image_folder(str(folder), SIDE, 3, training=True)
    assert len(found) == 18
    for index in range(18):
        image, label = found[0, index]
        assert isinstance(image, torch.Tensor)
        assert image.dtype == torch.uint8
        assert image[:, 5, 5].tolist() == [80 * label, 40 * (index % 6), 200]
        assert label == index // 6


def test_a_crop_is_a_function_of_its_draw(tmp_path: Path) -> None:
    """In any process, whatever was drawn before; about half are mirrored."""
    ramp = np.repeat(np.linspace(0, 255, 90).astype(np.uint8)[None, :, None], 60, axis=0).repeat(3, axis=2)
    (tmp_path / "only").mkdir()
    for name in range(2):
        Image.fromarray(ramp).save(tmp_path / "only" / f"{name}.png")
    found = image_folder(str(tmp_path), SIDE, 1, training=True)
    crops = {seed: torch.as_tensor(found[seed, seed % 2][0]).int() for seed in range(100)}
    torch.manual_seed(99)
    same({seed: torch.as_tensor(found[seed, seed % 2][0]).int() for seed in reversed(range(100))}, crops)
    assert 30 < sum(bool(crop[0, 5, -1] > crop[0, 5, 0]) for crop in crops.values()) < 70


def test_an_item_has_another_seed_in_each_epoch_and_run_and_the_same_in_any_batch() -> None:
    def seeds(seed: int, epoch: int, batch: int) -> dict[int, int]:
        order = Order(60, batch, seed)
        steps = range(epoch * order.epoch_steps, (epoch + 1) * order.epoch_steps)
        return {item: drawn for step in steps for drawn, item in order.draws(step).tolist()}

    assert seeds(0, 1, 60) == seeds(0, 1, 12)
    runs = [seeds(seed, epoch, 60) for seed in (0, 1) for epoch in (0, 1)]
    assert len({drawn for run in runs for drawn in run.values()}) == 4 * 60


def test_every_format_is_decoded_and_damage_is_named(tmp_path: Path) -> None:
    """Pillow reads what torchvision does not."""
    picture = Image.new("RGB", (40, 30), (250, 20, 20))
    for name, kind in (("a.bmp", "RGB"), ("a.png", "P"), ("a.jpg", "CMYK"), ("a.tiff", "RGB"), ("a.webp", "RGB")):
        picture.convert(kind).save(tmp_path / name)
        found = decoded(str(tmp_path / name))
        assert (found.shape, found.dtype) == ((3, 30, 40), torch.uint8), name
        assert found[0].float().mean() > 200 > 60 > found[1].float().mean(), name
    Image.fromarray(np.full((30, 40), 60000, dtype=np.uint16)).save(tmp_path / "gray16.png")
    assert decoded((tmp_path / "gray16.png").read_bytes(), "0").dtype == torch.uint8
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:300])
    with pytest.raises(WorkloadError, match=r"cannot read the image .*cut\.jpg: .*repair or remove it"):
        decoded(str(tmp_path / "cut.jpg"))


def test_loaded_data_needs_torchvision(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    assert source(config("synthetic")).order(4, 0).epoch_steps == 5
    for kind in ("fakedata", "imagefolder", "ray"):
        with pytest.raises(WorkloadError, match=r"has no torchvision for its torch.*set ray.image"):
            source(config(kind, data_path=str(folder))).order(4, 0)


def test_parquet_tensors_are_one_data_set(tensors: Path) -> None:
    found = ParquetImages(str(tensors), SIDE, 3, training=True)
    assert len(found) == 20
    for index in (0, 3, 4, 9, 10, 19, 2):
        image, label = found[0, index]
        assert image.shape == (3, SIDE, SIDE)
        assert set(image.flatten().tolist()) == {index}
        assert label == index % 3


def test_parquet_of_encoded_pictures(tmp_path: Path, folder: Path) -> None:
    files = sorted(folder.rglob("*.png"))
    table = pa.table({"image": [file.read_bytes() for file in files], "label": [i // 6 for i in range(18)]})
    parquet.write_table(table, tmp_path / "all.parquet")
    image, label = ParquetImages(str(tmp_path), SIDE, 3, training=True)[0, 8]
    assert (image[:, 3, 3].tolist(), label) == ([80, 80, 200], 1)


def test_ray_data_tasks_do_not_import_torch() -> None:
    """Each task is a process, and importing torch takes longer than an epoch of small data."""
    code = "import sys, workloads.train.data.items; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "False\n"


def test_a_ray_data_task_reads_its_rows(tensors: Path) -> None:
    """test_convnext_cluster.py runs the whole pipeline."""
    order, items = Order(20, 7, 3), ParquetImages(str(tensors), SIDE, 3, training=True)
    cut = [read({"data": order.draws(3)[share(rank, 3).rows]}, items) for rank in range(3)]
    assert np.concatenate([part["image"] for part in cut])[:, 0, 0, 0].tolist() == order.rows(3).tolist()


def test_missing_data_is_named(tmp_path: Path, folder: Path, tensors: Path) -> None:
    (tmp_path / "no-classes").mkdir()
    (tmp_path / "no-images" / "empty").mkdir(parents=True)
    parquet.write_table(pa.table({"picture": [1]}), tmp_path / "odd.parquet")
    for problem, kind, path, classes in (
        ("--data-path /nowhere: no such folder on node", "imagefolder", "/nowhere", 3),
        ("Couldn't find any class folder in", "imagefolder", tmp_path / "no-classes", 3),
        ("3 class folders, but the model has 1000 classes.*--set classes=3", "imagefolder", folder, 1000),
        (
            "no valid file for the classes empty.*one folder of images per class",
            "imagefolder",
            tmp_path / "no-images",
            1,
        ),
        ("--data-path /nowhere: no such folder", "ray", "/nowhere", 3),
        ("odd.parquet: no column image, label", "ray", tmp_path, 3),
    ):
        with pytest.raises(WorkloadError, match=problem):
            source(config(kind, data_path=str(path), classes=classes)).order(1, 0)
    with pytest.raises(WorkloadError, match=r"label 2, but the model has 2 classes"):
        ParquetImages(str(tensors), SIDE, 2, training=True)[0, 2]
    with pytest.raises(
        WorkloadError, match=r"an image of 3072 bytes, not 3 · 64 · 64; set its side with --set image=SI"
    ):
        ParquetImages(str(tensors), 64, 3, training=True)[0, 2]
