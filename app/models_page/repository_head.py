"""What stands above the quantisations of a repository. No Qt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.models_page.figures import count
from app.models_page.suggestion import Suggestion
from app.placement import Translate

if TYPE_CHECKING:
    from registry.sources.source import Repository


def head(
    id: str, repository: Repository | None, suggestion: Suggestion | None, tr: Translate
) -> tuple[str, str, tuple[str, ...], str]:
    """Title, origin, facts and a paragraph: as the catalogue tells of one that it suggests, else as the Hub does."""
    conditions = tr("asks you to agree to its conditions")
    if suggestion is not None:
        facts = (
            suggestion.licence,
            tr("remembers up to {n} tokens").format(n=f"{suggestion.context:,}") if suggestion.context else "",
            tr("sees pictures") if suggestion.sees else "",
            tr("thinks before it answers") if suggestion.thinks else "",
            conditions if suggestion.gated else "",
        )
        paragraph = " ".join(part for part in (suggestion.good_for, suggestion.why) if part)
        return suggestion.name, id, facts, paragraph
    title = id.rpartition("/")[2]
    if repository is None:
        return title, id, (), ""
    facts = (
        repository.licence,
        repository.family,
        tr("{n} downloads a month").format(n=count(repository.downloads)) if repository.downloads else "",
        tr("changed {day}").format(day=repository.updated) if repository.updated else "",
        conditions if repository.gated else "",
    )
    return title, id, facts, ""
