"""The system's dialogs that choose files. None of them stops the window while it is open."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QCoreApplication, Qt, Signal
from PySide6.QtWidgets import QFileDialog, QMenu, QWidget

from app.local_engine import STARTER


def choose_pictures(parent: QWidget, then: Callable[[list[str]], None]) -> None:
    dialog = _dialog(parent, _tr("Add pictures"), QFileDialog.FileMode.ExistingFiles)
    dialog.setNameFilters([_tr("Pictures (*.png *.jpg *.jpeg *.webp *.gif *.bmp *.heic *.heif)"), _tr("All files (*)")])
    dialog.filesSelected.connect(then)
    dialog.open()


def choose_models_folder(parent: QWidget, then: Callable[[str], None]) -> None:
    dialog = _dialog(parent, _tr("Choose a folder for the models"), QFileDialog.FileMode.Directory)
    dialog.setOption(QFileDialog.Option.ShowDirsOnly)
    dialog.fileSelected.connect(then)
    dialog.open()


class OpenMenu(QMenu):
    """The ways to another model. A checkpoint is a folder, which no dialog offers beside files."""

    chosen = Signal(str)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.file = self.addAction(self.tr("Open a model file…"), self._choose_file)
        self.folder = self.addAction(self.tr("Open a model folder…"), self._choose_folder)
        self.addSeparator()
        self.starter = self.addAction(self.tr("Starter model"), lambda: self.chosen.emit(STARTER))
        self.setToolTipsVisible(True)
        self.file.setToolTip(self.tr("A GGUF file, or the safetensors file of a checkpoint"))
        self.folder.setToolTip(self.tr("A checkpoint: the folder with config.json and safetensors files"))

    def _choose_file(self) -> None:
        dialog = _dialog(self.parentWidget(), self.tr("Open a model file"), QFileDialog.FileMode.ExistingFile)
        dialog.setNameFilters([self.tr("Models (*.gguf *.safetensors)"), self.tr("All files (*)")])
        dialog.fileSelected.connect(self.chosen)
        dialog.open()

    def _choose_folder(self) -> None:
        dialog = _dialog(self.parentWidget(), self.tr("Open a model folder"), QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly, False)
        dialog.fileSelected.connect(self.chosen)
        dialog.open()


def _dialog(parent: QWidget, title: str, mode: QFileDialog.FileMode) -> QFileDialog:
    dialog = QFileDialog(parent.window(), title)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.setFileMode(mode)
    return dialog


def _tr(text: str) -> str:
    return QCoreApplication.translate("choosing", text)
