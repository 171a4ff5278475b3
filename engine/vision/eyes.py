"""What a model sees with: a vision tower, brought into memory when the first picture comes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from engine.cancel import Cancel
from engine.errors import ImageError, MillstreamError, SettingsError, UnsupportedModelError
from engine.formats.index import TensorIndex
from engine.kernels.ops import Ops, Tensor
from engine.memory.meter import Meter
from engine.models.metadata import Metadata
from engine.models.model import Model
from engine.text.pictures import FORMS, PictureForm
from engine.types import Image
from engine.vision.images import open_image
from engine.vision.patches import Picture
from engine.vision.projector import all_beside, load_tower, read_projector
from engine.vision.tower import Tower, projector_name


class Eyes:
    """A vision tower's file, and the tower once it is needed. The text model is known by the index of its file."""

    def __init__(self, path: Path, text: TensorIndex) -> None:
        """Raises UnsupportedModelError where the two do not belong together, and what `read_projector` raises."""
        self.index = read_projector(path, text.sizes)
        self.name = projector_name(self.index)
        self.form: PictureForm = FORMS[self.name]
        self.nbytes = sum(info.nbytes for info in self.index.tensors.values())
        self._files = self.index.paths[0].name, text.paths[0].name
        self._tower: Tower | None = None
        self._seen: dict[bytes, Picture] = {}
        architecture = Metadata(text.metadata).text("general.architecture")
        if architecture not in self.form.architectures:
            known = ", ".join(self.form.architectures)
            raise UnsupportedModelError(
                f"{self._files[0]} ({self.name}) is a vision tower for models of {known}, but {self._files[1]} is of "
                f"{architecture}: choose the mmproj file that was published with the model."
            )
        width = text.metadata.get(f"{architecture}.embedding_length")
        made = self.index.metadata.get("clip.vision.projection_dim")
        if made != width:
            raise self._misfit(f"rows of {made} numbers", f"rows of {width}")
        levels = sum(name.startswith("v.deepstack.") and name.endswith(".fc1.weight") for name in self.index.tensors)
        taken = text.metadata.get(f"{architecture}.n_deepstack_layers", 0)
        if levels != taken:
            raise self._misfit(f"{levels} DeepStack levels", f"{taken} DeepStack levels")

    def look(
        self,
        images: Iterable[Image],
        model: Model,
        ops: Ops,
        meter: Meter,
        max_patches: int | None,
        counted: Callable[[int], None],
        cancel: Cancel | None,
    ) -> list[Picture]:
        """The images as the tower takes them; those of the last call need not be prepared again.

        `counted` is told how many tokens they take so far, and may raise: each holds megabytes. Raises ImageError for a
        file that is no picture or one that the model does not take, what `load_tower` raises, and `Cancelled`: while
        the tower is read, and between one picture and the next.
        """
        cancel = cancel or Cancel()
        if self._tower is None:
            own = Meter()
            tower = load_tower(self.index, ops, own, cancel=cancel)
            if tower.width != model.inset_width:
                raise self._misfit(f"rows of {tower.width} numbers", f"rows of {model.inset_width}")
            self._tower = tower
            meter.add("vision", own.use().weights)
        seen: dict[bytes, Picture] = {}
        pictures = []
        for image in images:
            cancel.check()
            key = hashlib.sha256(image.data).digest()
            if key not in seen:
                seen[key] = self._seen.get(key) or self._prepare(image, self._tower, max_patches)
            pictures.append(seen[key])
            counted(sum(picture.tokens for picture in pictures))
        meter.add("vision", _bytes(seen) - _bytes(self._seen))
        self._seen = seen
        return pictures

    def features(self, picture: Picture, ops: Ops, cancel: Cancel | None) -> Tensor:
        """[picture.tokens, model.inset_width] of a picture that `look` gave. A cancelled one raises `Cancelled`."""
        assert self._tower is not None
        return self._tower.encode(ops, picture, cancel)

    @staticmethod
    def _prepare(image: Image, tower: Tower, max_patches: int | None) -> Picture:
        pixels = open_image(image.data, name=image.name)
        try:
            return tower.prepare(pixels, max_patches)
        except ImageError as error:
            raise ImageError(f"{image.name}: {error}") from None

    def _misfit(self, made: str, taken: str) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"{self._files[0]} makes {made}, but {self._files[1]} takes {taken}: choose the mmproj file that was "
            "published with the model."
        )


def _bytes(seen: Mapping[bytes, Picture]) -> int:
    return sum(picture.pixels.nbytes for picture in seen.values())


def find_eyes(text: TensorIndex, chosen: Path | None) -> Eyes | None:
    """The tower of a file that was chosen, or of the first beside the model that fits; `None` where none does.

    Raises what `Eyes` raises for the chosen one.
    """
    if chosen is not None:
        return Eyes(chosen, text)
    return _first_fitting(text)[0]


def blind(model: str, text: TensorIndex) -> SettingsError:
    """What to say of pictures for a model without eyes."""
    if (error := _first_fitting(text)[1]) is not None:
        return SettingsError(f"{model} cannot see pictures. {error}")
    return SettingsError(
        f"{model} cannot see pictures: it has no vision tower. Put the mmproj file that was published with it into its "
        "folder or name it with --mmproj, or choose a model that sees."
    )


def _first_fitting(text: TensorIndex) -> tuple[Eyes | None, MillstreamError | None]:
    """Of the towers beside a model, and what is wrong with the likeliest one where none fits."""
    problem: MillstreamError | None = None
    try:
        for path in all_beside(text.paths[0]):
            try:
                return Eyes(path, text), None
            except MillstreamError as error:
                problem = problem or error
    except MillstreamError as error:  # of a checkpoint's folder
        problem = error
    return None, problem
