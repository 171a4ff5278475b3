"""From the catalogue and a machine to what the page recommends. No Qt."""

from __future__ import annotations

from collections.abc import Sequence

from app.models_page.fitness import Fitness, Kind
from app.models_page.suggestion import Place, Suggestion
from registry.catalogue import Entry
from registry.choice import FASTER, Choice, Where, fits, recommend
from registry.fit import Fit, Label
from registry.machine import MachineFacts

KINDS: dict[Where, Kind] = {"card": "gpu", "card and memory": "memory", "memory": "memory", "disk": "disk"}
LABELS: dict[Label, Kind] = {Label.GPU: "gpu", Label.MEMORY: "memory", Label.DISK: "disk", Label.CANNOT: "cannot"}
TOO_LARGE = "It needs more memory than this computer can give to a model, even from disk."
WHY: dict[Place, str] = {
    "best": "",
    "better": "It answers better than the first choice, but is too large for the memory and streams from disk.",
    "faster": "It is quicker than the first choice, and its answers are a little simpler.",
    "other": "It is about as good as the first choice, and of another maker.",
    "more": "",
}


def suggest(entries: Sequence[Entry], machine: MachineFacts) -> tuple[Suggestion, ...]:
    """The recommended one, those beside it, and then all the others: those that fit before those that stream, the
    better ones first, and last what cannot run. Raises SettingsError where nothing runs."""
    found = recommend(entries, machine)
    best = found.choice
    named = [_suggestion(best, "best", found.why)]
    for other in found.runners_up:
        if other.where == "disk" and best.where != "disk":
            place: Place = "better"
        else:
            place = "faster" if other.pace >= FASTER * best.pace else "other"
        named.append(_suggestion(other, place, WHY[place]))
    taken = {best.entry.id, *(other.entry.id for other in found.runners_up)}
    rest = [entry for entry in entries if entry.id not in taken]
    runs = [choice for entry in rest if (choice := _best(entry, machine)) is not None]
    runs.sort(key=lambda choice: (choice.where == "disk", -choice.merit))
    able = {choice.entry.id for choice in runs}
    return (
        *named,
        *(_suggestion(choice, "more", "") for choice in runs),
        *(_unable(entry) for entry in rest if entry.id not in able),
    )


def told(fit: Fit) -> Fitness:
    """What the engine's plan says."""
    return Fitness(LABELS[fit.label], fit.why, fit.tok_s, fit.first_token_s)


def _best(entry: Entry, machine: MachineFacts) -> Choice | None:
    """Its quantisation that suits best."""
    found = [fits(entry, name, machine, sees=entry.sees) for name in entry.quantisations]
    able = [choice for choice in found if choice is not None]
    return max(able, key=lambda choice: (choice.where != "disk", choice.merit), default=None)


def _suggestion(choice: Choice, place: Place, why: str) -> Suggestion:
    fitness = Fitness(KINDS[choice.where], tok_s=choice.tok_s)
    return _of(choice.entry, choice.quantisation, choice.download, fitness, place, why)


def _unable(entry: Entry) -> Suggestion:
    return _of(entry, entry.quantisations[0], 0, Fitness("cannot", TOO_LARGE), "more", TOO_LARGE)


def _of(entry: Entry, quantisation: str, nbytes: int, fitness: Fitness, place: Place, why: str) -> Suggestion:
    return Suggestion(
        name=entry.name,
        good_for=entry.good_for,
        repository=entry.repository,
        quantisation=quantisation,
        nbytes=nbytes,
        fitness=fitness,
        place=place,
        why=why,
        licence=entry.licence,
        context=entry.context,
        sees=entry.sees,
        thinks=entry.thinks,
        gated=entry.gated,
    )
