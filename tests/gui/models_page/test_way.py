"""The whole way of a model: found, looked at, downloaded, loaded, chatted with, verified, repaired, removed."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.models_page.page import ModelsPage
from app.window import Window
from engine.types import Settings
from registry.library import Library
from tests.gui.models_page.conftest import LARGE, OTHER, TINY, Open, Walk
from tests.hub_faults import CutOff, Hang, Slow, WrongBytes
from tests.hub_server import HubServer

NAME = f"{TINY}/Tiny-Chat-Q8_0"


def test_a_model_is_searched_downloaded_listed_loaded_and_chatted_with(
    window: Window, page: ModelsPage, walk: Walk, library: Library, folder: Path
) -> None:
    walk.download(TINY, "Q8_0")
    walk.until(lambda: walk.main() == "Load")
    walk.until(lambda: page.repository.table.choices[0].fitness.kind == "memory")
    assert page.repository.table.choices[0].fitness.first_token_s is not None
    assert [model.name for model in library.list()] == [NAME]
    page.show_part("library")
    walk.until(lambda: page.library.list.row is not None and page.library.list.row.key == NAME)
    assert page.model.title.text() == "Tiny-Chat-Q8_0"
    walk.until(lambda: page.model.fit.isVisible())
    assert page.model.fit.words.text().startswith("Fits memory")
    page.model.actions.main.click()
    assert not window.models.shown, "the chat shows how the model loads"
    walk.until(lambda: window.chat.state == "ready")
    window.chat.settings = Settings(max_tokens=4, temperature=0)
    window.chat.send("Hello")
    walk.until(lambda: window.chat.state == "ready" and window.chat.session.exchanges[0].finished)
    window.models.show()
    walk.until(lambda: page.library.rows.row(0).note == "loaded now")
    assert page.model.actions.main.text() == "Chat with it"
    walk.until((folder / "last-used.json").exists)
    (used,) = json.loads((folder / "last-used.json").read_text(encoding="utf-8"))["models"]
    assert Path(used["path"]) == library.list()[0].path
    assert used["day"] == date.today().isoformat()


def test_a_download_is_paused_and_resumed_from_its_details(
    page: ModelsPage, walk: Walk, hub: HubServer, library: Library
) -> None:
    hub.fault(f"{OTHER}/Other-Q4_K_M.gguf", Slow(8e6))
    walk.download(OTHER, "Q4_K_M")
    walk.until(lambda: walk.main() == "Pause")
    walk.until(lambda: any(item.done > 1 << 20 for item in page.desk.items.values()))
    walk.press()
    walk.until(lambda: walk.main() == "Resume")
    (item,) = page.desk.items.values()
    assert 0 < item.done < LARGE
    assert walk.page.repository.actions.progress.value() == pytest.approx(1000 * item.done / LARGE, abs=1)
    page.show_part("downloads")
    row = page.downloads.rows.row(0)
    assert (row.note, row.tone) == ("Paused", "muted")
    page.download.actions.main.click()
    walk.until(lambda: [item.state for item in page.desk.items.values()] == ["done"])
    first = [start for start, _ in hub.fetched(f"{OTHER}/Other-Q4_K_M.gguf")]
    assert first[0] == 0
    assert first[-1] >= item.done - (1 << 20), "it went on where it was"


def test_what_came_of_a_paused_one_is_removed_after_a_question(page: ModelsPage, walk: Walk, hub: HubServer) -> None:
    hub.fault(f"{OTHER}/Other-Q4_K_M.gguf", Slow(8e6))
    walk.download(OTHER, "Q4_K_M")
    walk.until(lambda: walk.main() == "Pause")
    walk.press()
    walk.until(lambda: walk.main() == "Resume")
    actions = page.repository.actions
    actions.quiet[0].click()
    assert (walk.main(), actions.quiet[0].text()) == ("Keep it", "Remove")
    actions.main.click()
    assert walk.main() == "Resume"
    actions.quiet[0].click()
    actions.quiet[0].click()
    walk.until(lambda: walk.main() == "Download")
    assert not page.desk.items


def test_a_broken_download_rests_with_a_sentence(
    page: ModelsPage, walk: Walk, hub: HubServer, library: Library
) -> None:
    hub.fault(f"{OTHER}/Other-Q8_0.gguf", WrongBytes(), times=9)
    walk.download(OTHER, "Q8_0")
    walk.until(lambda: walk.main() == "Resume")
    sentence = page.repository.actions.sentence
    assert "Other-Q8_0.gguf" in sentence.text()
    assert sentence.property("tone") == "warn"
    page.show_part("downloads")
    assert page.downloads.rows.row(0).note == page.download.notice.sentence
    assert "Other-Q8_0.gguf" in page.download.notice.sentence
    assert library.list() == ()


def test_another_start_goes_on_with_what_was_being_downloaded(
    window: Window, walk: Walk, hub: HubServer, open_window: Open, qtbot: QtBot
) -> None:
    hub.fault(f"{OTHER}/Other-Q4_K_M.gguf", Slow(8e6))
    walk.download(OTHER, "Q4_K_M")
    walk.until(lambda: window.model_bar.downloads_button.isVisible())
    window.close()
    second = open_window()
    qtbot.waitUntil(lambda: second.model_bar.downloads_button.isVisible(), timeout=20_000)
    second.model_bar.downloads_button.click()
    assert second.models.page.part == "downloads"
    qtbot.waitUntil(lambda: [item.state for item in second.models.desk.items.values()] == ["done"], timeout=20_000)
    assert not second.model_bar.downloads_button.isVisible()


def test_a_damaged_model_is_found_out_and_repaired(page: ModelsPage, walk: Walk, library: Library) -> None:
    walk.download(TINY, "Q8_0")
    walk.until(lambda: walk.main() == "Load")
    (model,) = library.list()
    content = bytearray(model.path.read_bytes())
    content[-100] ^= 1
    model.path.write_bytes(content)
    page.show_part("library")
    walk.until(lambda: page.model.title.text() == "Tiny-Chat-Q8_0")
    page.model.actions.quiet[0].click()
    walk.until(lambda: page.model.actions.main.text() == "Repair")
    assert "is damaged" in page.model.notice.sentence
    assert page.library.rows.row(0).tone == "bad"
    assert library.list() == ()
    page.model.actions.main.click()
    walk.until(lambda: page.model.actions.main.text() == "Load")
    assert [model.name for model in library.list()] == [NAME]
    page.model.actions.quiet[0].click()
    walk.until(lambda: page.shelf.verifying == "")
    walk.until(lambda: "as it came" in page.model.actions.told)


def test_a_repair_that_is_stopped_leaves_the_model_in_the_library(
    page: ModelsPage, walk: Walk, library: Library, hub: HubServer
) -> None:
    walk.download(TINY, "Q8_0")
    walk.until(lambda: walk.main() == "Load")
    (model,) = library.list()
    content = bytearray(model.path.read_bytes())
    content[-100] ^= 1
    model.path.write_bytes(content)
    hub.fault(f"{TINY}/{model.path.name}", Hang(1000))
    page.desk.repair(model.place)
    walk.until(lambda: [item.state for item in page.desk.running] == ["downloading"])
    page.show_part("downloads")
    walk.until(lambda: page.download.title.text() == "Tiny-Chat-Q8_0")
    page.download.actions.quiet[0].click()
    assert "Stop the repair of Tiny-Chat-Q8_0?" in page.download.actions.asked
    page.download.actions.quiet[0].click()
    walk.until(lambda: page.desk.items == {} and [bool(kept.broken) for kept in page.shelf.models] == [True])
    assert [known.name for known in library.known()] == [NAME]


def test_a_model_is_deleted_after_a_question(page: ModelsPage, walk: Walk, library: Library) -> None:
    walk.download(TINY, "Q8_0")
    walk.until(lambda: walk.main() == "Load")
    page.show_part("library")
    walk.until(lambda: page.model.title.text() == "Tiny-Chat-Q8_0")
    page.model.actions.quiet[1].click()
    assert page.model.actions.main.text() == "Keep it"
    page.model.actions.quiet[0].click()
    walk.until(lambda: page.library.empty.isVisible())
    assert library.list() == ()
    assert list(library.root.glob("[!.]*")) == [], "nor empty folders"
    walk.details(TINY)
    walk.until(lambda: walk.main() == "Download")


def test_a_connection_that_breaks_is_taken_up_again(page: ModelsPage, walk: Walk, hub: HubServer) -> None:
    hub.fault(f"{OTHER}/Other-Q8_0.gguf", CutOff(1 << 20))
    walk.download(OTHER, "Q8_0")
    walk.until(lambda: [item.state for item in page.desk.items.values()] == ["done"])
