"""A window whose Models page works over a real Hub on loopback and a library in a folder of an odd name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import keyring
import pytest
from pytestqt.qtbot import QtBot

from app.application import open_settings
from app.bridge import Bridge
from app.local_engine import load_local
from app.look import Appearance
from app.models_page.fitness import Fitness
from app.models_page.late_hub import LateHub
from app.models_page.page import ModelsPage
from app.models_page.services import Services, ThisMachine, bringing
from app.window import Window
from engine.cancel import Cancel
from registry.items import Offer
from registry.library import Library
from registry.place import Place
from registry.sources.source import Source
from tests.gui.models_page.shelves import RoughMachine
from tests.hub_faults import Big
from tests.hub_server import HubServer
from tests.registry.test_tokens import MemoryKeyring
from tests.tiny_chat import write_tiny_chat

TINY = "labs/Tiny-Chat-0.1M-GGUF"
OTHER = "labs/Other-7B-GGUF"
GATED = "labs/Gated-8B-GGUF"
LARGE = 40 << 20
WAIT = 20_000

Open = Callable[[], Window]


class Oracle(RoughMachine):
    """The offers of some repositories are planned for by the engine, on this machine; the others' bytes are noise."""

    def __init__(self, library: Library, name: str) -> None:
        super().__init__(library, name)
        self.exact = {TINY}

    def fit(self, source: Source, offer: Offer, unloading: int, cancel: Cancel) -> Fitness:
        if offer.files[0].repository in self.exact:
            return ThisMachine.fit(self, source, offer, unloading, cancel)
        return super().fit(source, offer, unloading, cancel)


@pytest.fixture
def hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    tiny = write_tiny_chat(folder / "tiny.gguf").read_bytes()
    with HubServer() as hub:
        hub.use(monkeypatch)
        hub.add(TINY, {"Tiny-Chat-Q8_0.gguf": tiny, "README.md": b"# Tiny"}, downloads=500)
        hub.add(
            OTHER, {"Other-Q4_K_M.gguf": Big(LARGE), "Other-Q8_0.gguf": Big(2 << 20, 1)}, downloads=900, licence="mit"
        )
        hub.add(GATED, {"Gated-Q4_K_M.gguf": Big(1 << 20, 2)}, gated=True, downloads=100, licence="llama3.1")
        yield hub


@pytest.fixture
def kept() -> Iterator[MemoryKeyring]:
    """The keyring, in memory."""
    former = keyring.get_keyring()
    made = MemoryKeyring()
    keyring.set_keyring(made)
    yield made
    keyring.set_keyring(former)


@pytest.fixture
def library(folder: Path) -> Library:
    return Library(folder / "models")


@pytest.fixture
def place() -> Path | None:
    """The file that says where the library is, where it can be elsewhere."""
    return None


def library_of(place: Path) -> Library:
    """That which the file says now."""
    now = Place.read(place)
    return Library(now.models, now.chosen)


@pytest.fixture
def open_window(
    hub: HubServer,
    kept: MemoryKeyring,
    library: Library,
    place: Path | None,
    folder: Path,
    appearance: Appearance,
    qtbot: QtBot,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Open]:
    """Opens a window; one after the other is as one start of the program after the other."""
    monkeypatch.setenv("MILLSTREAM_HOME", str(folder))
    windows: list[Window] = []

    def make() -> Window:
        source = LateHub()
        oracle = Oracle(library, "laptop-16gb-intel")
        used = folder / "last-used.json"

        def where() -> Library:
            return library if place is None else library_of(place)

        services = Services(where, source, oracle, source.renew, used, bringing(where), margin=0, settings=place)
        window = Window(Bridge(load_local), appearance, open_settings(folder / "window.ini"), services)
        window.resize(1280, 800)
        windows.append(window)
        window.show()
        qtbot.waitExposed(window)
        window.models.start()
        return window

    yield make
    hub.release()
    for window in windows:
        window.close()
        assert not window.bridge.running
        window.deleteLater()


@pytest.fixture
def window(open_window: Open) -> Window:
    return open_window()


@pytest.fixture
def page(window: Window) -> ModelsPage:
    """In front, with nothing asked yet but what it shows first."""
    window.models.show()
    return window.models.page


class Walk:
    """The steps that a person takes through the page."""

    def __init__(self, page: ModelsPage, qtbot: QtBot) -> None:
        self.page, self.qtbot = page, qtbot

    def until(self, condition: Callable[[], object]) -> None:
        self.qtbot.waitUntil(lambda: bool(condition()), timeout=WAIT)

    def search(self, words: str, expect: str) -> None:
        self.page.show_part("search")
        self.page.search.field.setText(words)
        self.page.search.search()
        self.until(lambda: self.page.search.rows.number_of(expect) >= 0)

    def details(self, id: str) -> None:
        """Of a repository that a search finds."""
        self.search(id.rpartition("/")[2], id)
        self.page.search.list.choose(id)
        self.until(lambda: self.page.repository.table.rowCount() and self.page.repository.origin.text() == id)

    def choose(self, quantisation: str) -> None:
        table = self.page.repository.table
        number = [choice.offer.name for choice in table.choices].index(quantisation)
        self.page.repository.offers.setCurrentIndex(table.index(number, 0))

    def main(self) -> str:
        return self.page.repository.actions.main.text()

    def press(self) -> None:
        self.page.repository.actions.main.click()

    def download(self, id: str, quantisation: str) -> None:
        self.details(id)
        self.choose(quantisation)
        self.until(lambda: self.main() == "Download")
        self.press()


@pytest.fixture
def walk(page: ModelsPage, qtbot: QtBot) -> Walk:
    return Walk(page, qtbot)
