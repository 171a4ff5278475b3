"""What a model that is elsewhere would do here with more memory or less: sliders behind a button."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QToolButton, QVBoxLayout, QWidget

from app.budgets.estimate import Estimator
from app.budgets.panel import BudgetPanel
from app.icons import icon
from app.look import Look
from app.models_page.services import Services
from app.models_page.tasks import Tasks
from engine.cancel import Cancel
from engine.types import Budgets

if TYPE_CHECKING:
    from registry.items import Offer


class OfferBudgets(QWidget):
    """Nothing is asked about an offer until the sliders are unfolded."""

    def __init__(self, services: Services, tasks: Tasks, look: Look) -> None:
        super().__init__()
        self._services = services
        self._look = look
        self._offer: Offer | None = None
        self._unloading = 0
        self._about: tuple[Offer, int] | None = None
        self.button = QToolButton()
        self.button.setText(self.tr("With other memory or context"))
        self.button.setObjectName("foldedBudgets")
        self.button.setCheckable(True)
        self.button.setIconSize(QSize(16, 16))
        self.button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.button.setToolTip(self.tr("See how it would run here with more memory or less"))
        self.panel = BudgetPanel(tasks, look)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 8)
        column.setSpacing(8)
        column.addWidget(self.button)
        column.addWidget(self.panel)
        self.button.toggled.connect(lambda _: self._renew())
        self._renew()

    def show_offer(self, offer: Offer | None, unloading: int) -> None:
        """`unloading` bytes are given back before it is loaded."""
        self._offer, self._unloading = offer, unloading
        self.setVisible(offer is not None)
        self._renew()

    def apply_look(self, look: Look) -> None:
        self._look = look
        self.panel.apply_look(look)
        self._show_button()

    def _renew(self) -> None:
        unfolded = self.button.isChecked()
        self.panel.setVisible(unfolded)
        self._show_button()
        offer, unloading, services = self._offer, self._unloading, self._services
        about = (offer, unloading) if unfolded and offer is not None else None
        if about == self._about:
            return
        self._about = about
        self.panel.clear()
        if offer is not None and about is not None:

            def opened(cancel: Cancel) -> tuple[Estimator, Budgets | None]:
                return services.oracle.estimator(services.source, offer, unloading, cancel), None

            self.panel.open(opened)

    def _show_button(self) -> None:
        self.button.setIcon(icon("unfold" if not self.button.isChecked() else "fold", 16, self._look.theme.muted))
