"""Frozen features: each image goes through a pretrained ViT once, and only a head is trained.

The feature of an image is the ViT's last hidden state at the class token, behind the final layer
norm: 768 numbers for ViT-B. The letter's own features are of that kind (theirs obey the two
relations a layer norm imposes, to rounding), not the pooler's output.

Features are kept in a safetensors file whose name is a key of model and images, so other weights
or other images never meet old features, and a machine that has the features needs no weights.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedhaw.data.errors import DataError
from fedhaw.data.images import LabelledImages
from fedhaw.errors import importing
from fedhaw.files import write_bytes

VIT_B16 = "google/vit-base-patch16-224-in21k"
"""ViT-B/16 pretrained on ImageNet-21k, the letter's backbone."""

FORMAT = 1
"""Raised whenever the same images and weights would give other features."""

_MODEL_FILES = ("config.json", "model.safetensors")


def frozen_features(
    images: LabelledImages,
    cache: Path,
    backbone: str = VIT_B16,
    *,
    batch: int = 64,
    download: bool = True,
    progress: bool = True,
) -> NDArray[np.float32]:
    """Features of images, from the cache or, the first time, from the model.

    Args:
        images: the N images.
        cache: folder for the safetensors files; made if missing.
        backbone: a ViT on the Hugging Face hub, or a folder with config.json and
            model.safetensors. Pickled weights are never loaded.
        batch: images at a time.
        download: fetch weights that are not on this machine from the hub.
        progress: show a progress bar, if there is a terminal to show it on.

    Returns:
        (N, F) float32.

    Raises:
        DataError: an image or the weights cannot be had or used.
    """
    path = cache / f"{feature_key(images, backbone)}.safetensors"
    features = _from_cache(path, len(images.names))
    if features is None:
        features = _compute(images, load_backbone(backbone, download), batch, progress)
        stored = {"sha256": _sha256(features), "backbone": backbone}
        write_bytes(path, save({"features": features}, metadata=stored))
    return features


def feature_key(images: LabelledImages, backbone: str) -> str:
    """Name of model and data: changes whenever the features would.

    A folder is known by the content of its files, a hub model by its name.
    """
    folder = Path(backbone)
    if folder.is_dir():
        model: object = {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
            for name in _MODEL_FILES
            if (folder / name).is_file()
        }
    else:
        model = backbone
    described = json.dumps([FORMAT, model, images.digest()], sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()[:40]


def load_backbone(backbone: str, download: bool = True) -> Any:
    """The pretrained ViT, frozen, from this machine or else, if that is allowed, from the hub."""
    with importing(f"The ViT {backbone}", "vit", DataError):
        from transformers import ViTModel
    is_folder = Path(backbone).is_dir()
    if not is_folder and (backbone.count("/") != 1 or backbone.startswith((".", "/", "~"))):
        raise DataError(
            f"The folder {backbone} of a ViT does not exist, and models on the hub are named "
            "owner/model; correct the backbone."
        )
    # Files that are here already are used without asking the network.
    attempts = (True, False) if download and not is_folder else (True,)
    for local_only in attempts:
        try:
            loaded: Any = ViTModel.from_pretrained(
                backbone,
                use_safetensors=True,
                local_files_only=local_only,
                output_loading_info=True,
            )
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            reason = error
            continue
        model, report = loaded
        missing = [key for key in report["missing_keys"] if not key.startswith("pooler.")]
        if missing:
            raise DataError(
                f"The weights of {backbone} lack {missing[0]} and {len(missing) - 1} more, so they "
                "are not a ViT's; choose another model."
            )
        return model.eval().requires_grad_(False)
    first_line = str(reason).strip().splitlines()[0].rstrip(".")
    raise DataError(
        f"The ViT {backbone} could not be loaded ({first_line}); put its config.json and "
        "model.safetensors into a folder and give that folder as the backbone."
    ) from reason


def _compute(images: LabelledImages, model: Any, batch: int, progress: bool) -> NDArray[np.float32]:
    import torch
    from tqdm import tqdm

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    rows: list[NDArray[np.float32]] = []
    # disable=None shows the bar on a terminal only.
    with (
        torch.inference_mode(),
        tqdm(
            total=len(images.names),
            desc="ViT features",
            unit="image",
            disable=None if progress else True,
        ) as bar,
    ):
        for inputs in images.batches(model.config.image_size, batch):
            hidden = model(pixel_values=torch.from_numpy(inputs).to(device)).last_hidden_state
            rows.append(hidden[:, 0].float().cpu().numpy())
            bar.update(len(inputs))
    features = np.concatenate(rows)
    if not np.isfinite(features).all():
        raise DataError("The ViT gave features that are not finite; use other weights.")
    return features


def _from_cache(path: Path, count: int) -> NDArray[np.float32] | None:
    """Stored features; None when there are none, or the file is damaged and must be made again."""
    try:
        with safe_open(path, framework="np") as file:
            features: NDArray[np.float32] = file.get_tensor("features")
            stored = file.metadata() or {}
    except (OSError, SafetensorError):
        return None
    sound = len(features) == count and stored.get("sha256") == _sha256(features)
    return features if sound else None


def _sha256(features: NDArray[np.float32]) -> str:
    return hashlib.sha256(np.ascontiguousarray(features).data).hexdigest()
