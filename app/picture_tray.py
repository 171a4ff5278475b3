"""The pictures that will go with the message being written."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QImage, QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QWidget

from app.attachment import Attachment, attach
from app.flow import Flow
from app.incoming import Source, as_png
from app.look import Look
from app.thumbnail import SQUARE, Thumbnail
from engine.errors import MillstreamError

GAP = 8

log = logging.getLogger(__name__)


class PictureTray(QScrollArea):
    """A square for each picture, in the order in which they came, from the moment they came; hidden while empty.

    More than two rows are scrolled.
    """

    changed = Signal()
    refused = Signal(str)
    """One sentence: why something is not taken."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._look = look
        self._squares: list[Thumbnail] = []
        self.setObjectName("tray")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        page = QWidget()
        self._flow = Flow(page, GAP)
        self._flow.setContentsMargins(0, GAP, 0, GAP // 2)
        self.setWidget(page)
        self._reader = PictureReader()
        self._reader.done.connect(self._on_read)
        self.hide()

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        return tuple(square.attachment for square in self._squares if square.attachment is not None)

    @property
    def reading(self) -> bool:
        """Whether one of them is not known yet."""
        return any(square.attachment is None for square in self._squares)

    @property
    def squares(self) -> tuple[Thumbnail, ...]:
        return tuple(self._squares)

    def add(self, sources: Iterable[Source]) -> None:
        for source in sources:
            square = Thumbnail(self._look, removable=True)
            square.removed.connect(lambda square=square: self._remove(square))
            self._flow.addWidget(square)
            QWidget.setTabOrder(self._squares[-1].remove_button if self._squares else self, square.remove_button)
            self._squares.append(square)
            self._reader.read(square, source)
        self._refresh()

    def clear(self) -> None:
        for square in self.squares:
            self._drop(square)
        self._refresh()

    def apply_look(self, look: Look) -> None:
        self._look = look
        for square in self._squares:
            square.apply_look(look)

    def shut_down(self) -> None:
        """Read no more."""
        self._reader.shut_down()

    def _on_read(self, square: Thumbnail, result: Attachment | str) -> None:
        if square not in self._squares:
            return
        if isinstance(result, Attachment):
            square.show_picture(result)
        else:
            self._drop(square)
            self.refused.emit(result)
        self._refresh()

    def _remove(self, square: Thumbnail) -> None:
        self._drop(square)
        self._refresh()

    def _drop(self, square: Thumbnail) -> None:
        self._squares.remove(square)
        self._flow.removeWidget(square)
        square.hide()
        square.deleteLater()

    def _refresh(self) -> None:
        self.setVisible(bool(self._squares))
        self._fit_height()
        self.changed.emit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_height()

    def _fit_height(self) -> None:
        self.setFixedHeight(min(self._flow.heightForWidth(self.width()), 2 * (SQUARE + GAP) + GAP // 2))


class PictureReader(QObject):
    """Reads pictures one after another in a thread of its own."""

    done = Signal(object, object)
    """For whom, and an Attachment, or the sentence that says why there is none."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = ThreadPoolExecutor(1, "pictures")

    def read(self, who: object, source: Source) -> None:
        self._thread.submit(self._read, who, source)

    def shut_down(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    def _read(self, who: object, source: Source) -> None:
        try:
            self.done.emit(who, self._attach(source))
        except MillstreamError as error:
            self.done.emit(who, str(error))
        except BaseException as error:
            log.error("a picture could not be read", exc_info=error)
            self.done.emit(who, self.tr("The picture could not be read. Save it again, in another format."))

    def _attach(self, source: Source) -> Attachment:
        if isinstance(source, Path):
            return attach(source)
        return attach(as_png(source) if isinstance(source, QImage) else source, self.tr("The pasted picture"))
