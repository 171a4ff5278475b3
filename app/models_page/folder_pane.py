"""Another folder for the models, in the details: which one, what it means, and how far the way there is."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPushButton

from app.choosing import choose_models_folder
from app.look import Look, label
from app.models_page.action_bar import Deed
from app.models_page.desk import Desk
from app.models_page.facts import Facts
from app.models_page.figures import of_size, size
from app.models_page.mover import Mover
from app.models_page.pane import Pane
from app.models_page.shelf import Shelf
from app.models_page.standing import shortened
from app.notice_line import NoticeLine

if TYPE_CHECKING:
    from registry.moving import Survey

Mode = Literal["move", "choose"]
SUBFOLDER = "Millstream models"
PAUSE = 200
"""Milliseconds without a key before the folder is looked at."""


class FolderPane(Pane):
    """`done`: the models are where the person wanted them; `left`: they think better of it."""

    done = Signal()
    left = Signal()

    def __init__(self, mover: Mover, desk: Desk, shelf: Shelf, look: Look) -> None:
        super().__init__()
        self.setAccessibleName(self.tr("Another folder for the models"))
        self._mover, self._desk, self._shelf = mover, desk, shelf
        self._mode: Mode = "move"
        self._survey: Survey | None = None
        self._refused = ""
        self._busy = False
        self._finished = False
        self.field = QLineEdit()
        self.field.setAccessibleName(self.tr("New folder"))
        self.field.setPlaceholderText(self.tr("New folder"))
        self.browse = QPushButton(self.tr("Choose…"))
        self.browse.setAccessibleName(self.tr("Choose a folder…"))
        self.facts_below = Facts()
        self.notice = NoticeLine(look)
        self._asked = label(self.tr("New folder"), level="author")
        self._asked.setBuddy(self.field)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.field, 1)
        row.addWidget(self.browse)
        self.body.addWidget(self._asked)
        self.body.addLayout(row)
        self.body.addWidget(self.facts_below)
        self.body.addWidget(self.notice)
        self.body.addStretch(1)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(PAUSE)
        self._timer.timeout.connect(self._look)
        self.field.textChanged.connect(self._changed)
        self.field.returnPressed.connect(self.actions.main.click)
        self.browse.clicked.connect(self._browse)
        for before, after in pairwise((self.field, self.browse, *self.actions.quiet, self.actions.main)):
            self.setTabOrder(before, after)
        mover.changed.connect(self._renew)
        mover.ended.connect(self._ended)
        desk.changed.connect(lambda _: self._renew())
        shelf.changed.connect(self._renew)

    @property
    def target(self) -> Path | None:
        """The folder that is asked for, where it can be one."""
        text = self.field.text().strip()
        try:
            path = Path(text).expanduser()
        except RuntimeError:
            return None
        return path if path.is_absolute() else None

    def open(self, mode: Mode) -> None:
        """Ask, unless the models are on their way already."""
        if not self._mover.moving:
            self._mode = mode
            self._finished = False
            self._refused = ""
            self.field.clear()
            self._changed()
            self._mover.refusal(self._refuse)
        self._renew()

    def take_focus(self) -> None:
        (self.field if self.field.isVisible() and self.field.isEnabled() else self.actions.main).setFocus()

    def apply_look(self, look: Look) -> None:
        self.notice.apply_look(look)

    def set_folder(self, folder: Path) -> None:
        """One that was picked. Models that move do not go among other files, but into a folder of their own there."""
        if self._mode == "move" and _has_other_files(folder):
            folder = folder / SUBFOLDER
        self.field.setText(str(folder))

    def _browse(self) -> None:
        choose_models_folder(self, lambda path: self.set_folder(Path(path)))

    def _changed(self) -> None:
        self._survey = None
        self._finished = False
        self.notice.show_sentence("")
        self._timer.start()
        self._renew()

    def _look(self) -> None:
        target = self.target
        if target is None or self._refused or self._mover.moving:
            if self.field.text().strip() and target is None:
                self.notice.show_sentence(self.tr("Write the whole path of the folder, from its beginning."))
            return
        if self._mode == "move":
            self._mover.survey(target, self._surveyed, lambda sentence, _: self._not_surveyed(sentence))

    def _refuse(self, sentence: str) -> None:
        self._refused = sentence
        if sentence:
            self.notice.show_sentence(sentence)
        self._renew()

    def _surveyed(self, survey: Survey) -> None:
        self._survey = survey
        short = survey.needed > survey.free
        self.notice.show_sentence(self._short(survey) if short else "")
        self._renew()

    def _not_surveyed(self, sentence: str) -> None:
        self._survey = None
        self.notice.show_sentence(sentence)
        self._renew()

    def _short(self, survey: Survey) -> str:
        return self.tr("The room there is too little: {need} are needed, {free} are free.").format(
            need=size(survey.needed), free=size(survey.free)
        )

    def _begin(self) -> None:
        target = self.target
        if target is None:
            return
        self.notice.show_sentence("")
        if self._mode == "move":
            self._mover.move(target)
            return
        self._busy = True
        self._mover.choose(target, self._chosen, lambda sentence, _: self._not_chosen(sentence))
        self._renew()

    def _chosen(self) -> None:
        self._busy = False
        self.done.emit()

    def _not_chosen(self, sentence: str) -> None:
        self._busy = False
        self.notice.show_sentence(sentence)
        self._renew()

    def _ended(self, sentence: str) -> None:
        standing = self._shelf.standing
        self._finished = not sentence and not self._mover.stopped
        self.notice.show_sentence(sentence)
        self._survey = None
        if not self._finished and standing is not None:
            self._timer.start()
        self._renew()

    def _renew(self) -> None:
        standing, moving = self._shelf.standing, self._mover.moving
        if standing is None:
            return
        place = shortened(standing.root)
        told = self.tr("They are in {place} now.").format(place=place)
        if self._finished:
            self.show_head(self.tr("The models have moved"), told, ())
        elif self._mode == "move":
            everything = self.tr(
                "Everything goes there, downloads that are under way too. Until all is there, the old folder is in use."
            )
            self.show_head(self.tr("Move the models"), told, (), everything if not self._refused else "")
        else:
            nothing = self.tr("Models that are in it are there at once. Nothing is moved.")
            asked = self.tr("They are kept in {place}.").format(place=place)
            self.show_head(self.tr("Choose another folder"), asked, (), nothing if not self._refused else "")
        asking = not self._refused and not self._finished
        for widget in (self._asked, self.field, self.browse):
            widget.setVisible(asking)
            widget.setEnabled(not moving and not self._busy)
        self._show_facts(asking)
        self._show_deeds()

    def _show_facts(self, asking: bool) -> None:
        survey = self._survey if asking else None
        if survey is None:
            self.facts_below.show_facts([])
            return
        files = self.tr("1 file") if survey.files == 1 else self.tr("{n} files").format(n=survey.files)
        how = self.tr("Both are on one drive, so it takes a moment.")
        if not survey.renames:
            how = self.tr("All is copied and checked; then it is deleted here.")
        what = f"{size(survey.nbytes)}, {files}" if survey.files else self.tr("nothing yet")
        self.facts_below.show_facts(
            [
                (self.tr("What moves"), what),
                (self.tr("Room there"), self.tr("{size} free").format(size=size(survey.free))),
                (self.tr("How"), how),
            ]
        )

    def _show_deeds(self) -> None:
        if self._mover.moving:
            done, total = self._mover.done, self._mover.total
            # Every byte is written, and read again.
            figures = of_size(done // 2, total // 2) if total > 1 else self.tr("getting ready")
            self.actions.show_deeds(
                self.tr("Moving the models"),
                figures,
                Deed(self.tr("Stop"), self._mover.stop),
                progress=done / max(total, 1),
                sentence=self.tr("You can go on chatting. Downloads wait until this is done."),
            )
            return
        if self._finished or self._refused:
            self.actions.show_deeds(
                "", "", Deed(self.tr("Close"), self.done.emit if self._finished else self.left.emit)
            )
            return
        cancel = Deed(self.tr("Cancel"), self.left.emit)
        if self._mode == "choose":
            ready = self.target is not None and not self._busy
            self.actions.show_deeds("", "", Deed(self.tr("Use this folder"), self._begin if ready else None), [cancel])
            return
        survey = self._survey
        ready = survey is not None and survey.needed <= survey.free
        running = len(self._desk.running)
        text = self.tr("Pause them and move") if running else self.tr("Move")
        words = self.tr("A download is running.") if running == 1 else self.tr("{n} downloads are running.")
        note = self.tr("Paused while the models move; then they go on.") if running else ""
        self.actions.show_deeds(
            words.format(n=running) if running else "", note, Deed(text, self._begin if ready else None), [cancel]
        )


def _has_other_files(folder: Path) -> bool:
    from registry.place import marker_id

    try:
        return any(folder.iterdir()) and not marker_id(folder)
    except OSError:
        return False
