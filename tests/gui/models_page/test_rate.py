"""How much of the connection downloads may take, as it is chosen on the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.models_page.page import ModelsPage
from app.models_page.rate import RATES, KeptRate
from app.window import Window
from tests.gui.models_page.conftest import OTHER, TINY, Open, Walk
from tests.hub_faults import Slow
from tests.hub_server import HubServer


def test_a_limit_is_chosen_over_the_downloads_and_slows_them_at_once(
    page: ModelsPage, walk: Walk, hub: HubServer, folder: Path
) -> None:
    chip = page.downloads.rate
    page.show_part("downloads")
    assert not chip.isVisible(), "there is nothing to be slowed"
    hub.fault(f"{OTHER}/Other-Q4_K_M.gguf", Slow(4e6))
    walk.download(OTHER, "Q4_K_M")
    walk.until(lambda: any(item.done > 1 << 20 for item in page.desk.items.values()))
    page.show_part("downloads")
    assert chip.isVisible() and chip.text().startswith("No speed limit")
    chip.choices[1].trigger()
    assert chip.text().startswith("At most 1 MB/s")
    walk.until((folder / "downloads.json").exists)
    assert json.loads((folder / "downloads.json").read_text(encoding="utf-8")) == {"bytes_a_second": 1_000_000}
    walk.until(lambda: any(0 < item.speed < 1.6e6 for item in page.desk.items.values()))
    chip.choices[0].trigger()
    walk.until(lambda: not (folder / "downloads.json").exists())
    walk.until(lambda: any(item.speed > 2e6 for item in page.desk.items.values()))


def test_the_limit_is_there_again_at_the_next_start(
    window: Window, walk: Walk, open_window: Open, folder: Path
) -> None:
    walk.download(TINY, "Q8_0")
    walk.until(lambda: walk.main() == "Load")
    walk.page.downloads.rate.choices[3].trigger()
    walk.until((folder / "downloads.json").exists)
    window.close()
    again = open_window()
    again.models.show()
    walk.until(lambda: again.models.desk.rate == RATES[3])
    assert again.models.page.downloads.rate.text().startswith("At most 5 MB/s")


@pytest.mark.parametrize(
    "text", ["", "[]", '{"bytes_a_second": -1}', '{"bytes_a_second": 3}', '{"bytes_a_second": "5"}']
)
def test_a_record_that_says_nothing_sound_is_no_limit(tmp_path: Path, text: str) -> None:
    (tmp_path / "downloads.json").write_text(text, encoding="utf-8")
    assert KeptRate(tmp_path / "downloads.json").read() is None
    assert KeptRate(tmp_path / "nothing.json").read() is None
