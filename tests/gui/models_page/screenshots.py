"""Renders the Models page over a Hub on loopback, light and dark, at one and two pixels a point, wide and narrow:

    python -m tests.gui.models_page.screenshots FOLDER [PART OF A NAME …]

The pictures are for looking at: no test compares them.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tests.gui.rendering import end, run, schemes

if TYPE_CHECKING:
    from app.models_page.page import ModelsPage
    from app.window import Window
    from tests.hub_server import HubServer

SIZES = tuple(tuple(map(int, size.split("x"))) for size in os.environ.get("ONLY_SIZES", "1280x800 760x700").split())


def render(folder: Path, parts: Sequence[str], scale: str) -> int:
    from pytest import MonkeyPatch

    from app.application import make_application, open_settings
    from app.bridge import Bridge
    from app.look import Appearance
    from app.models_page.late_hub import LateHub
    from app.models_page.services import Services, bringing
    from app.window import Window
    from registry.library import Library
    from registry.place import choose
    from registry.saved import write_json
    from tests.gui.models_page.shelves import RoughMachine, fill, stock
    from tests.gui.silent_engine import load_silent
    from tests.gui.states import settle
    from tests.hub_server import HubServer

    application = make_application(["screenshots"])
    appearance = Appearance(application)
    for scheme in schemes(application):
        for width, height in SIZES:
            for name, arrange in states():
                whole = f"models-{name}-{width}-{scheme}-{scale}x"
                if parts and not any(part in whole for part in parts):
                    continue
                with tempfile.TemporaryDirectory() as home, HubServer() as hub, MonkeyPatch.context() as patch:
                    hub.use(patch)
                    fill(hub)
                    root = Path(home) / "models"
                    stock(root, Path(home))
                    place = Path(home) / "library.json"
                    choose(root, place)
                    library = Library(root, chosen=True)
                    opened = next(model.path for model in library.list() if "4B" in model.name)
                    last = (date.today() - timedelta(days=1)).isoformat()
                    used = Path(home) / "last-used.json"
                    write_json(used, {"models": [{"path": str(opened), "day": last}]})
                    source = LateHub()
                    oracle = RoughMachine(library, "laptop-16gb-intel")
                    bring = bringing(lambda library=library: library)
                    services = Services(
                        lambda library=library: library,
                        source,
                        oracle,
                        source.renew,
                        used,
                        bring,
                        margin=0,
                        settings=place,
                    )
                    settings = open_settings(Path(home) / "window.ini")
                    window = Window(Bridge(load_silent), appearance, settings, services)
                    window.resize(width, height)
                    window.show()
                    window.chat.load("silent")
                    window.models.start()
                    window.models.show()
                    settle(application.processEvents, 0.6)
                    arrange(window, hub)
                    settle(application.processEvents, 0.3)
                    window.grab().save(str(folder / f"{whole}.png"))
                    hub.release()
                    end(window)
    return 0


def pump(seconds: float) -> None:
    from tests.gui.states import pump as process

    process(seconds)


def page_of(window: Window) -> ModelsPage:
    return window.models.page


def open_row(window: Window, key: str) -> None:
    """Go into the details, also where they are beside the list already."""
    page = page_of(window)
    section = page.sections[page.part]
    section.list.choose(key)
    section.opened.emit(key)
    pump(0.5)


def recommended(window: Window, hub: HubServer) -> None:
    """As it opens."""


def recommended_details(window: Window, hub: HubServer) -> None:
    page = page_of(window)
    open_row(window, page.recommended.rows.row(1).key)
    page.repository.offers.setFocus()


def library(window: Window, hub: HubServer) -> None:
    page_of(window).show_part("library")
    pump(0.3)


def library_details(window: Window, hub: HubServer) -> None:
    library(window, hub)
    open_row(window, page_of(window).library.rows.row(0).key)


def library_remove(window: Window, hub: HubServer) -> None:
    library_details(window, hub)
    open_row(window, page_of(window).library.rows.row(1).key)
    page_of(window).model.actions.quiet[1].click()


def search(window: Window, hub: HubServer) -> None:
    page = page_of(window)
    page.show_part("search")
    page.search.field.setText("instruct")
    page.search.search()
    pump(0.5)


def search_details(window: Window, hub: HubServer) -> None:
    search(window, hub)
    open_row(window, "bartowski/Mistral-Small-24B-Instruct-2501-GGUF")


def gated(window: Window, hub: HubServer) -> None:
    search(window, hub)
    open_row(window, "meta-llama/Llama-3.3-70B-Instruct-GGUF")


def offline(window: Window, hub: HubServer) -> None:
    page = page_of(window)
    from app.models_page.late_hub import LateHub

    os.environ["HF_HUB_OFFLINE"] = "1"
    source = page.search.services.source
    assert isinstance(source, LateHub)
    source.renew()
    page.show_part("search")
    pump(0.5)
    del os.environ["HF_HUB_OFFLINE"]


def downloads(window: Window, hub: HubServer) -> None:
    from tests.hub_faults import Hang, Slow

    page = page_of(window)
    source = page.search.services.source
    from engine.cancel import Cancel
    from registry.downloads.offered import wanted_of
    from registry.items import offers

    for id, name, fault in (
        ("unsloth/Qwen3-8B-GGUF", "Q4_K_M", Slow(38e6)),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "Q4_K_M", Slow(11e6)),
        ("microsoft/Phi-4-mini-instruct-GGUF", "Q6_K", Hang(3_000_000)),
        ("ggml-org/Qwen2.5-VL-7B-Instruct-GGUF", "Q4_K_M", Hang(0)),
    ):
        repository = source.repository(id, Cancel())
        offer = next(offer for offer in offers(repository) if offer.name == name)
        hub.fault(f"{id}/{offer.files[0].path}", fault, times=9)
        page.desk.add(wanted_of(offer, repository.licence))
        pump(0.1)
    page.show_part("downloads")
    pump(4.0)
    for item in page.desk.items.values():
        if "Llama" in item.name:
            page.desk.pause(item.id)
    pump(0.3)


def downloads_details(window: Window, hub: HubServer) -> None:
    downloads(window, hub)
    open_row(window, page_of(window).downloads.rows.row(3).key)


def computer(window: Window, hub: HubServer) -> None:
    page_of(window).show_part("computer")
    pump(0.4)


def computer_broken(window: Window, hub: HubServer) -> None:
    from tests.gui.models_page.shelves import RoughMachine, recorded

    oracle = page_of(window).search.services.oracle
    assert isinstance(oracle, RoughMachine)
    oracle.recorded = recorded("desktop-nvidia-broken")
    computer(window, hub)
    page_of(window).computer.copy()
    page_of(window).computer.actions.main.setFocus()


def move(window: Window, hub: HubServer) -> None:
    library(window, hub)
    page = page_of(window)
    page.library.folder_line.button.click()
    page.folder.field.setText(str(Path.home().parent / "media" / "Backup" / "Millstream models"))
    pump(0.5)


def move_busy(window: Window, hub: HubServer) -> None:
    downloads(window, hub)
    move(window, hub)


def moving(window: Window, hub: HubServer) -> None:
    """As it is in the middle: the real one of so small a library is over at once."""
    move(window, hub)
    page = page_of(window)
    page.mover.target = page.folder.target
    page.mover.done, page.mover.total = 4_120_000_000, 10_740_000_000
    page.mover.changed.emit()


def cut(window: Window, hub: HubServer) -> None:
    from registry.place import Place

    page = page_of(window)
    settings = page.search.services.settings
    root = page.search.services.library().root
    Place(root, True, coming=Path("/media/Backup/Millstream models")).write(settings)
    library(window, hub)


def away(window: Window, hub: HubServer) -> None:
    root = page_of(window).search.services.library().root
    root.rename(root.with_name("unplugged"))
    library(window, hub)


def away_downloads(window: Window, hub: HubServer) -> None:
    away(window, hub)
    page_of(window).show_part("downloads")
    pump(0.2)


def away_choose(window: Window, hub: HubServer) -> None:
    away(window, hub)
    page_of(window).library.away.elsewhere_button.click()
    pump(0.2)


def states() -> Iterator[tuple[str, Callable[[Window, HubServer], None]]]:
    for arrange in (
        recommended,
        recommended_details,
        library,
        library_details,
        library_remove,
        search,
        search_details,
        gated,
        offline,
        downloads,
        downloads_details,
        computer,
        computer_broken,
        move,
        move_busy,
        moving,
        cut,
        away,
        away_downloads,
        away_choose,
    ):
        yield arrange.__name__.replace("_", "-"), arrange


if __name__ == "__main__":
    sys.exit(run("tests.gui.models_page.screenshots", render, sys.argv[1:]))
