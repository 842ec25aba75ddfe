import io
import json
import logging
import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from fedhaw.data import DataError, dogs, features, frozen_features, load
from fedhaw.data.checksums import md5_of_file
from fedhaw.data.features import feature_key, load_backbone
from fedhaw.data.images import ImageFolder, ImageTar, LabelledImages, decode

SIDE = 32
HIDDEN = 32


@pytest.fixture(scope="module", autouse=True)
def quiet_transformers() -> Iterator[None]:
    """Its progress bars and reports are not ours to test."""
    import transformers

    hub_logging: Any = transformers.utils.logging

    level = hub_logging.get_verbosity()
    hub_logging.set_verbosity_error()
    hub_logging.disable_progress_bar()
    yield
    hub_logging.set_verbosity(level)
    hub_logging.enable_progress_bar()


def make_vit(folder: Path, seed: int) -> str:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=SIDE,
        patch_size=8,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        ViTModel(config).save_pretrained(folder, safe_serialization=True)
    return str(folder)


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_vit(tmp_path_factory.mktemp("vit"), seed=0)


def jpeg(seed: int, size: tuple[int, int] = (50, 40), mode: str = "RGB") -> bytes:
    random = np.random.RandomState(seed)
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    buffer = io.BytesIO()
    Image.fromarray(random.randint(0, 256, shape, dtype=np.uint8)).save(buffer, "JPEG")
    return buffer.getvalue()


BREEDS = ("n001-Chihuahua", "n002-Pug", "n003-Spaniel")
TRAIN = [f"{breed}/{breed}_{number}.jpg" for breed in BREEDS for number in range(3)]
TEST = [f"{breed}/{breed}_{number}.jpg" for breed in BREEDS for number in (3, 4)]


def photographs() -> dict[str, bytes]:
    grey = {TRAIN[4]: jpeg(99, mode="L")}  # a few of the published ones are grey
    return {name: jpeg(seed, (30 + seed, 60)) for seed, name in enumerate(TRAIN + TEST)} | grey


def save_images(folder: Path) -> ImageFolder:
    for name, content in photographs().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return ImageFolder(folder)


def save_lists(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists in the published format, taken for the published ones."""
    for part, listed in (("train", TRAIN), ("test", TEST)):
        cells = np.empty((len(listed), 1), dtype=object)
        cells[:, 0] = listed
        labels = np.array([[BREEDS.index(name.split("/")[0]) + 1] for name in listed])
        path = folder / f"{part}_list.mat"
        savemat(path, {"file_list": cells, "labels": labels, "annotation_list": cells})
        monkeypatch.setitem(dogs.LIST_SUMS, path.name, md5_of_file(path))


def pack(path: Path, content: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, raw in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))


@pytest.fixture
def images(tmp_path: Path) -> LabelledImages:
    store = save_images(tmp_path / "Images")
    return LabelledImages(store, TRAIN, np.repeat(np.arange(3), 3))


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the images of every pass through a ViT."""
    from transformers import ViTModel

    seen: list[int] = []
    forward = ViTModel.forward

    def counting(self: Any, pixel_values: torch.Tensor, **more: Any) -> Any:
        seen.append(len(pixel_values))
        return forward(self, pixel_values, **more)

    monkeypatch.setattr(ViTModel, "forward", counting)
    return seen


def test_features_are_the_class_token_behind_the_last_layer_norm(
    images: LabelledImages, vit: str, tmp_path: Path
) -> None:
    made = frozen_features(images, tmp_path / "cache", vit, batch=4)
    assert made.shape == (9, HIDDEN)
    assert made.dtype == np.float32
    model = load_backbone(vit)
    inputs = np.concatenate(list(images.batches(SIDE, 9)))
    with torch.no_grad():
        hidden = model(pixel_values=torch.from_numpy(inputs)).last_hidden_state[:, 0]
    np.testing.assert_allclose(made, hidden.numpy(), atol=1e-5)
    # A fresh layer norm has weight 1 and bias 0, so its output is normalised.
    np.testing.assert_allclose(made.mean(axis=1), 0, atol=1e-5)
    np.testing.assert_allclose(made.std(axis=1), 1, atol=1e-3)


def distance_from_a_layer_norm(features: np.ndarray) -> float:
    """How far features are from x . v = 1 for one v, which a layer norm's output obeys."""
    x = features.astype(np.float64)
    v = np.linalg.solve(x.T @ x, x.sum(axis=0))  # least squares
    return float(np.abs(x @ v - 1).max())


def test_the_letters_features_are_of_that_kind(data_sets: Path) -> None:
    with np.load(data_sets / "dogs_vit_features.npz", allow_pickle=False) as stored:
        assert distance_from_a_layer_norm(stored["x"]) < 1e-5
        assert distance_from_a_layer_norm(np.tanh(stored["x"])) > 1e-2  # as the pooler gives them


def test_features_of_a_trained_layer_norm_are_of_that_kind(vit: str, tmp_path: Path) -> None:
    model = load_backbone(vit)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for values in model.layernorm.parameters():
            values.uniform_(0.5, 1.5)
    model.save_pretrained(tmp_path / "trained", safe_serialization=True)
    names = [f"{number}.jpg" for number in range(3 * HIDDEN)]
    for seed, name in enumerate(names):
        (tmp_path / name).write_bytes(jpeg(seed))
    many = LabelledImages(ImageFolder(tmp_path), names, np.zeros(len(names), np.int64))
    made = frozen_features(many, tmp_path / "cache", str(tmp_path / "trained"))
    assert distance_from_a_layer_norm(made) < 1e-4


def test_the_model_runs_once(
    images: LabelledImages, vit: str, tmp_path: Path, passes: list[int]
) -> None:
    first = frozen_features(images, tmp_path / "cache", vit, batch=4)
    assert passes == [4, 4, 1]
    again = frozen_features(images, tmp_path / "cache", vit, batch=4)
    assert passes == [4, 4, 1]
    np.testing.assert_array_equal(first, again)
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".safetensors"]


def test_kept_features_need_no_weights(
    images: LabelledImages, vit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "load_backbone", lambda *_: load_backbone(vit))
    first = frozen_features(images, tmp_path / "cache", "owner/model")

    def gone(*_: object) -> Any:
        raise DataError("no weights here")

    monkeypatch.setattr(features, "load_backbone", gone)
    np.testing.assert_array_equal(frozen_features(images, tmp_path / "cache", "owner/model"), first)


@pytest.mark.parametrize("damage", ["cut", "flip", "garbage", "other"])
def test_damaged_features_are_made_again(
    images: LabelledImages, vit: str, tmp_path: Path, passes: list[int], damage: str
) -> None:
    cache = tmp_path / "cache"
    first = frozen_features(images, cache, vit)
    (path,) = cache.iterdir()
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[:-5]
    elif damage == "flip":
        content[-5] ^= 1
    elif damage == "garbage":
        content = bytearray(b"not a safetensors file")
    else:
        from safetensors.numpy import save

        content = bytearray(save({"unrelated": np.zeros(3)}))
    path.write_bytes(content)
    np.testing.assert_array_equal(frozen_features(images, cache, vit), first)
    assert len(passes) == 2
    frozen_features(images, cache, vit)
    assert len(passes) == 2  # the file is sound again


def test_the_key_follows_model_and_images(images: LabelledImages, vit: str, tmp_path: Path) -> None:
    key = feature_key(images, vit)
    assert feature_key(images, vit) == key
    assert feature_key(images, make_vit(tmp_path / "other", seed=1)) != key
    assert feature_key(images, features.VIT_B16) != key
    assert feature_key(LabelledImages(images.store, TRAIN[::-1], images.labels), vit) != key
    (tmp_path / "Images" / TRAIN[0]).write_bytes(jpeg(1234))
    assert feature_key(images, vit) != key


def test_pickled_weights_are_not_loaded(vit: str, tmp_path: Path) -> None:
    folder = tmp_path / "pickled"
    folder.mkdir()
    (folder / "config.json").write_bytes((Path(vit) / "config.json").read_bytes())
    torch.save(load_backbone(vit).state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(DataError, match=r"could not be loaded.*put its config\.json and model\.s"):
        load_backbone(str(folder))


def test_damaged_or_foreign_weights_are_refused(vit: str, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / "config.json").write_bytes((Path(vit) / "config.json").read_bytes())
    (folder / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(DataError, match="could not be loaded"):
        load_backbone(str(folder))
    save_file(
        {"foreign": np.zeros(3, dtype=np.float32)},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(DataError, match="are not a ViT's"):
        load_backbone(str(folder))
    (folder / "config.json").write_text("{")
    with pytest.raises(DataError, match="could not be loaded"):
        load_backbone(str(folder))


def test_without_a_network_one_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(DataError) as caught:
        load_backbone(features.VIT_B16)
    message = str(caught.value)
    assert features.VIT_B16 in message
    assert "put its config.json and model.safetensors into a folder" in message
    assert "\n" not in message


def test_weights_are_not_fetched_when_downloads_are_forbidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import ViTModel

    asked = []

    def refuse(*_: object, local_files_only: bool, **__: object) -> None:
        asked.append(local_files_only)
        raise OSError("not on this machine")

    monkeypatch.setattr(ViTModel, "from_pretrained", refuse)
    folder = tmp_path / "stanford-dogs"
    save_images(folder / "Images")
    save_lists(folder, monkeypatch)
    with pytest.raises(DataError, match="not on this machine"):
        loaded(tmp_path, features.VIT_B16, monkeypatch)
    assert asked == [True]
    with pytest.raises(DataError):
        load_backbone(features.VIT_B16)
    assert asked == [True, True, False]


@pytest.mark.parametrize("backbone", ["./nowhere", "/no/where", "vit"])
def test_a_folder_that_is_not_there_is_not_looked_for_on_the_hub(backbone: str) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_backbone(backbone)


# Layouts ---------------------------------------------------------------------------------------


def loaded(data_dir: Path, vit: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("pooch.os_cache", lambda name: data_dir / "cache")
    monkeypatch.delenv("FEDHAW_DATA", raising=False)
    return load("stanford-dogs", data_dir, download=False, backbone=vit, progress=False)


def test_published_layouts_agree(
    tmp_path: Path, vit: str, monkeypatch: pytest.MonkeyPatch, passes: list[int]
) -> None:
    unpacked, packed = tmp_path / "a" / "stanford-dogs", tmp_path / "b" / "stanford-dogs"
    save_images(unpacked / "Images")
    save_lists(unpacked, monkeypatch)
    data = loaded(tmp_path / "a", vit, monkeypatch)
    assert data.x_train.shape == (9, HIDDEN)
    assert data.classes == 120
    np.testing.assert_array_equal(data.y_train, np.repeat([0, 1, 2], 3))
    np.testing.assert_array_equal(data.y_test, np.repeat([0, 1, 2], 2))
    loaded(tmp_path / "a", vit, monkeypatch)
    assert passes == [9, 6]

    packed.mkdir(parents=True)
    pack(packed / "images.tar", {f"Images/{name}": raw for name, raw in photographs().items()})
    lists = {path.name: path.read_bytes() for path in unpacked.glob("*.mat")}
    pack(packed / "lists.tar", lists)
    same = loaded(tmp_path / "b", vit, monkeypatch)
    np.testing.assert_array_equal(same.x_train, data.x_train)
    np.testing.assert_array_equal(same.x_test, data.x_test)


def test_class_folders_will_do(tmp_path: Path, vit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for part, names in (("train", TRAIN), ("test", TEST)):
        for name in names:
            path = tmp_path / "stanford-dogs" / part / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(photographs()[name])
    data = loaded(tmp_path, vit, monkeypatch)
    assert data.classes == 3
    np.testing.assert_array_equal(data.y_train, np.repeat([0, 1, 2], 3))
    extra = tmp_path / "stanford-dogs" / "test" / "n004-Wolf"
    extra.mkdir()
    (extra / "1.jpg").write_bytes(jpeg(5))
    with pytest.raises(DataError, match="must be the same classes"):
        loaded(tmp_path, vit, monkeypatch)


def test_lists_that_are_missing_changed_or_name_absent_images_are_refused(
    tmp_path: Path, vit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "stanford-dogs"
    save_images(folder / "Images")
    with pytest.raises(DataError, match=r"not train_list\.mat"):
        loaded(tmp_path, vit, monkeypatch)
    save_lists(folder, monkeypatch)
    (folder / "Images" / TEST[0]).unlink()
    with pytest.raises(DataError, match=f"lists '{TEST[0]}', which is not among the 14 images"):
        loaded(tmp_path, vit, monkeypatch)
    (folder / "train_list.mat").write_bytes(b"MATLAB 5.0 MAT-file, or so it says")
    with pytest.raises(DataError, match="not the published file"):
        loaded(tmp_path, vit, monkeypatch)
    monkeypatch.setitem(dogs.LIST_SUMS, "train_list.mat", md5_of_file(folder / "train_list.mat"))
    with pytest.raises(DataError, match=r"train_list\.mat is damaged"):
        loaded(tmp_path, vit, monkeypatch)


def test_features_kept_as_an_archive_are_used(
    data_sets: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        data = load("stanford-dogs", data_sets, download=False)
    assert "2201 training and 548 test samples" in caplog.text
    assert data.classes == 120


def test_an_archive_is_read_in_place_and_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "images.tar"
    pack(path, {"./Images/a/1.jpg": b"one", "Images/a/2.JPG": b"two", "Images/readme.txt": b"no"})
    store = ImageTar(path, root="Images")
    assert list(store.names) == ["a/1.jpg", "a/2.JPG"]
    assert store.read("a/2.JPG") == b"two"
    with pytest.raises(DataError, match=r"no image '\.\./\.\./etc/passwd'"):
        store.read("../../etc/passwd")
    pack(path, {"../outside.jpg": b"one"})
    with pytest.raises(DataError, match=r"images\.tar holds '\.\./outside\.jpg'"):
        list(ImageTar(path).names)
    path.write_bytes(b"not a tar")
    with pytest.raises(DataError, match=r"images\.tar is damaged"):
        list(ImageTar(path).names)


def test_only_listed_names_of_a_folder_are_opened(tmp_path: Path) -> None:
    (tmp_path / "secret.jpg").write_bytes(b"secret")
    store = save_images(tmp_path / "Images")
    with pytest.raises(DataError, match="no image"):
        store.read("../secret.jpg")


def test_an_image_is_prepared_as_the_vit_expects() -> None:
    white = io.BytesIO()
    Image.new("L", (7, 9), 255).save(white, "PNG")
    pixels = decode(white.getvalue(), "white.png", 16)
    assert pixels.shape == (3, 16, 16)
    assert pixels.dtype == np.float32
    np.testing.assert_array_equal(pixels, 1)


def test_images_that_are_none_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gif = io.BytesIO()
    Image.new("P", (4, 4)).save(gif, "GIF")
    for content in (b"", b"text", jpeg(0)[:200], gif.getvalue()):
        with pytest.raises(DataError, match=r"The image dog\.jpg cannot be decoded"):
            decode(content, "dog.jpg", 16)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # even where the caller has silenced Pillow's warning
        with pytest.raises(DataError, match="cannot be decoded"):
            decode(jpeg(0, (11, 11)), "dog.jpg", 16)


def test_the_tiny_vit_is_stored_as_the_real_one(vit: str) -> None:
    """config.json and model.safetensors, the two files the error messages ask for."""
    assert json.loads((Path(vit) / "config.json").read_text())["model_type"] == "vit"
    assert (Path(vit) / "model.safetensors").is_file()
