"""What suits this computer, from the catalogue."""

from __future__ import annotations

from app.look import Look
from app.models_page.figures import size
from app.models_page.rows import Row
from app.models_page.section import Section
from app.models_page.services import Services
from app.models_page.suggestion import Suggestion
from app.models_page.tasks import Tasks


class Recommended(Section):
    """The one to take stands first, then what else is worth a look, then all the others."""

    def __init__(self, services: Services, tasks: Tasks, look: Look) -> None:
        super().__init__(services, tasks, look, "")
        self.list.setAccessibleName(self.tr("Recommended models"))
        self.waiting.setAccessibleName(self.tr("Looking at this computer"))
        self._suggestions: dict[str, Suggestion] = {}
        self._asked = False

    def suggestion(self, key: str) -> Suggestion:
        return self._suggestions[key]

    def renew(self) -> None:
        """The machine is looked at once: what suits it does not change from one minute to the next."""
        if self._asked:
            return
        self._asked = True
        self.trouble.clear()
        self.waiting.show()
        self.tasks.run(self.services.oracle.suggestions, self._told, self._not_told)

    def forget(self) -> None:
        """Something is known of the machine that was not: what suits it is asked again."""
        self._asked = False

    def _told(self, suggestions: tuple[Suggestion, ...]) -> None:
        self.waiting.hide()
        self._suggestions = {suggestion.name: suggestion for suggestion in suggestions}
        headings = {
            "best": self.tr("Best for this computer"),
            "better": self.tr("Also worth a look"),
            "more": self.tr("All others"),
        }
        headings["faster"] = headings["other"] = headings["better"]
        rows, before = [], ""
        for suggestion in suggestions:
            heading = headings[suggestion.place]
            rows.append(self._row(suggestion, heading if heading != before else ""))
            before = heading
        self.rows.set_rows(rows)
        self.list.choose_first()

    def _row(self, suggestion: Suggestion, heading: str) -> Row:
        marks = [("eye", self.tr("sees pictures"))] if suggestion.sees else []
        if suggestion.gated:
            marks.append(("lock", self.tr("asks you to agree to its conditions")))
        return Row(
            key=suggestion.name,
            title=suggestion.name,
            heading=heading,
            detail=suggestion.good_for,
            aside=self.tr("about {size}").format(size=size(suggestion.nbytes)) if suggestion.nbytes else "",
            fitness=suggestion.fitness,
            marks=tuple(marks),
        )

    def _not_told(self, sentence: str, error: BaseException) -> None:
        self._asked = False
        self.waiting.hide()
        self.trouble.show_error(sentence, error)
