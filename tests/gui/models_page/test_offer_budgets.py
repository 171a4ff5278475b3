"""How an offer would run with other memory or context: asked only when a person wants to know."""

from __future__ import annotations

from app.models_page.page import ModelsPage
from engine.types import Budgets
from tests.gui.models_page.conftest import OTHER, TINY, Walk
from tests.hub_faults import Status
from tests.hub_server import HubServer


def test_an_offer_tells_what_it_would_do_with_less(page: ModelsPage, walk: Walk) -> None:
    walk.details(TINY)
    budgets = page.repository.budgets
    assert budgets.isVisible() and not budgets.panel.isVisible()
    budgets.button.click()
    panel = budgets.panel
    walk.until(lambda: panel.settled and panel.isVisible())
    assert panel.fit.words.text().startswith("Fits memory, about ")
    weights = dict(panel.bar.parts)["weights"]
    panel.memory.slider.setValue(2)
    walk.until(lambda: panel.settled)
    assert panel.fit.words.text().startswith("Streams from disk")
    assert dict(panel.bar.parts)["weights"] < weights
    assert page.repository.table.choices[0].fitness.kind == "memory", "the table tells of what is recommended"


def test_nothing_is_fetched_for_sliders_that_nobody_unfolded(page: ModelsPage, walk: Walk, hub: HubServer) -> None:
    walk.details(OTHER)
    walk.choose("Q8_0")
    assert not [asked for asked in hub.requests if "/resolve/" in asked.path]
    page.repository.budgets.button.click()
    walk.until(lambda: page.repository.budgets.panel.reason.text())
    assert [asked for asked in hub.requests if "/resolve/" in asked.path]


def test_what_is_no_model_says_so_and_the_next_offer_begins_anew(page: ModelsPage, walk: Walk) -> None:
    walk.details(OTHER)
    budgets = page.repository.budgets
    budgets.button.click()
    walk.until(lambda: budgets.panel.fit.words.text() == "Cannot run here")
    assert budgets.panel.reason.text()
    walk.details(TINY)
    walk.until(lambda: budgets.panel.settled and budgets.panel.runs)
    assert budgets.panel.budgets == Budgets()
    budgets.button.click()
    assert not budgets.panel.isVisible()


def test_where_the_hub_does_not_answer_nothing_is_claimed(page: ModelsPage, walk: Walk, hub: HubServer) -> None:
    walk.details(OTHER)
    hub.fault(f"{OTHER}/Other-Q4_K_M.gguf", Status(500), times=50)
    walk.choose("Q4_K_M")
    budgets = page.repository.budgets
    budgets.button.click()
    walk.until(lambda: budgets.panel.fit.words.text() == "Not known yet")
    assert budgets.panel.reason.text()
    assert not budgets.panel.memory.isEnabled()
