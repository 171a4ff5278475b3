"""The program around the window: its name and icon, its log, and what happens to a fault that nobody caught."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType

from PySide6.QtCore import QSettings, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication

from app.icons import program_icon

LOG_BYTES = 1_000_000

log = logging.getLogger("app")


def make_application(arguments: Sequence[str]) -> QApplication:
    """The one QApplication, scaled by whatever fraction the screen asks for."""
    QGuiApplication.setHighDpiScaleFactorRoundingPolicy(Qt.HighDpiScaleFactorRoundingPolicy.PassThrough)
    application = QApplication(list(arguments))
    application.setOrganizationName("Millstream")
    application.setApplicationName("Millstream")
    application.setDesktopFileName("millstream")
    application.setStyle("Fusion")
    application.setWindowIcon(program_icon())
    return application


def open_settings(path: Path) -> QSettings:
    return QSettings(str(path), QSettings.Format.IniFormat)


def start_log(path: Path) -> None:
    """Warnings go to standard error, everything to a file that stays small; without a place for it, only the former."""
    to_terminal = logging.StreamHandler()
    to_terminal.setLevel(logging.WARNING)
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(level=logging.INFO, handlers=[to_terminal], format=form)
    sys.excepthook = _log_uncaught
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # opening a pipe would wait for a reader
            raise OSError(f"{path} is not an ordinary file")
        to_file = RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8")
    except OSError as error:
        log.warning("there is no log file: %s", error)
    else:
        to_file.setFormatter(logging.Formatter(form))
        logging.getLogger().addHandler(to_file)


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    log.critical("a fault that nobody caught", exc_info=(kind, error, trace))
