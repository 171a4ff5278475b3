"""The conversation in hand: between the person, who writes, stops and begins anew, and the engine, which answers."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QStackedWidget

from app.attachment import Attachment
from app.bridge import Bridge
from app.composer import Composer
from app.conversation import Conversation
from app.model_bar import ModelBar, speed
from app.naming import display_name
from app.requests import (
    Answer,
    AnswerFailed,
    Fetching,
    LoadCancelled,
    Loaded,
    LoadFailed,
    Loading,
    Notice,
    Unloaded,
)
from app.session import Exchange, Session
from app.start_panel import StartPanel
from engine.types import Budgets, Event, Finished, PrefillProgress, Reasoning, Settings, Text, ToolCall

ChatState = Literal["no model", "fetching", "loading", "failed", "ready", "answering"]


class Chat(QObject):
    """Turns what the person does into requests, and notices into what the person sees.

    `answering` lasts until the engine says that it has stopped, not until the person asks it to.
    """

    state_changed = Signal(str)

    def __init__(
        self,
        bridge: Bridge,
        model_bar: ModelBar,
        start: StartPanel,
        conversation: Conversation,
        composer: Composer,
        pages: QStackedWidget,
    ) -> None:
        super().__init__(pages)
        self.session = Session()
        self.settings = Settings()
        self.state: ChatState = "no model"
        self._model = ""
        self._budgets: Budgets | None = None
        self._loaded: Loaded | None = None
        self._bridge = bridge
        self._model_bar = model_bar
        self._start = start
        self._conversation = conversation
        self._composer = composer
        self._pages = pages

        bridge.notice.connect(self._on_notice)
        composer.sent.connect(self.send)
        composer.stopped.connect(self.stop)
        start.example.connect(self.send)
        start.load.connect(self.load_again)
        start.cancel.connect(self.cancel_load)
        start.open_menu.chosen.connect(self.open)
        model_bar.open_menu.chosen.connect(self.open)
        composer.pictures_changed.connect(self._look_for_obstacles)
        conversation.retry.connect(self.retry)
        conversation.new_chat.connect(self.new_chat)
        conversation.open_again.connect(self.open_again)
        model_bar.new_chat.connect(self.new_chat)

    @property
    def loaded(self) -> Loaded | None:
        """The model that answers."""
        return self._loaded

    @property
    def budgets(self) -> Budgets | None:
        """What was asked for it; None where that was left to what was chosen before."""
        return self._budgets

    def take_focus(self) -> None:
        self._composer.draft.setFocus()

    def load(self, model: str, budgets: Budgets | None = None) -> None:
        """Fetch where needed, and load, in the background. Without `budgets`, those count that were chosen before."""
        self._model, self._budgets = model, budgets
        self._loaded = None
        self._model_bar.show_no_model(self.tr("Loading…"))
        self._start.show_loading()
        self._pages.setCurrentWidget(self._start)
        self._composer.show_context(0, 0)
        self._look_for_obstacles()
        self._set_state("loading")
        self._bridge.load(model, budgets)

    def open(self, model: str, budgets: Budgets | None = None) -> None:
        """Load another model. The conversation goes on with it, after a reply that is stopped here."""
        self.stop()
        self.load(model, budgets)

    def load_again(self) -> None:
        self.load(self._model, self._budgets)

    def reopen(self, budgets: Budgets) -> None:
        """Load the same model, which may use something else now. The conversation goes on with it."""
        self.open(self._model, budgets)

    def open_again(self) -> None:
        """Open the model anew, whose file failed in a reply. The conversation goes on with it."""
        if self.state == "ready":
            self.load_again()

    def cancel_load(self) -> None:
        self._start.show_cancelling()
        self._bridge.cancel()

    def send(self, text: str, pictures: tuple[Attachment, ...] = ()) -> None:
        """Ask, if there is a model and it is idle."""
        if self.state != "ready" or self._loaded is None:
            return
        exchange = self.session.ask(text, pictures)
        self._conversation.add_exchange(text, display_name(self._loaded.info), pictures)
        self._pages.setCurrentWidget(self._conversation)
        self._composer.draft.setFocus()
        self._model_bar.begin_reply()
        self._set_state("answering")
        self._bridge.ask(exchange.request_id, self.session.messages(), self.settings)

    def stop(self) -> None:
        """Stop the reply. What there is of it stays, and stays part of the conversation."""
        if self.state == "answering":
            self._composer.show_stopping()
            self._bridge.cancel()

    def retry(self) -> None:
        """Ask the newest question again."""
        if self.state == "ready":
            exchange = self.session.withdraw()
            self._conversation.remove_exchange()
            self.send(exchange.prompt, exchange.pictures)

    def new_chat(self) -> None:
        self.stop()
        self.session.clear()
        self._conversation.clear()
        self._composer.show_context(0, 0)
        self._pages.setCurrentWidget(self._start)
        self._look_for_obstacles()
        self._composer.draft.setFocus()

    def _on_notice(self, notice: Notice) -> None:
        match notice:
            case Fetching():
                self._set_state("fetching")
                self._start.show_fetching(notice)
            case Loading():
                self._set_state("loading")
                self._start.show_loading(notice)
            case Loaded():
                self._loaded = notice
                self._model_bar.show_model(notice)
                self._start.show_invitation()
                if self.session.exchanges:
                    self._conversation.model_opened()
                    self._pages.setCurrentWidget(self._conversation)
                self._look_for_obstacles()
                self._set_state("ready")
            case LoadCancelled() | Unloaded():
                self._no_model()
            case LoadFailed():
                self._model_bar.show_no_model()
                self._start.show_failed(notice.sentence)
                self._set_state("failed")
            case Answer():
                self._on_event(self.session.open_exchange(notice.request_id), notice.event)
            case AnswerFailed():
                self._on_failure(self.session.open_exchange(notice.request_id), notice)

    def _no_model(self) -> None:
        self._loaded = None
        self._model_bar.show_no_model()
        self._start.show_no_model(self._model)
        self._set_state("no model")

    def _on_event(self, exchange: Exchange | None, event: Event) -> None:
        """`exchange` is None for a reply that the person has turned away from: only its end matters."""
        reply = self._conversation.reply
        if exchange is not None and reply is not None:
            match event:
                case PrefillProgress():
                    percent = 100 * event.done // max(event.total, 1)
                    what = self.tr("Reading the conversation · {percent} %").format(percent=percent)
                    if event.picture:
                        what = self.tr("Looking at a picture · {percent} %").format(percent=percent)
                    reply.set_activity(what, event.done, event.total)
                case Reasoning():
                    exchange.add_reasoning(event.text)
                    reply.think(event.text)
                    self._model_bar.piece_arrived()
                case Text():
                    exchange.add_text(event.text)
                    reply.stream(event.text)
                    self._model_bar.piece_arrived()
                case ToolCall():
                    reply.add_call(event)
                case Finished():
                    exchange.finish(event)
                    reply.finish(*self._ending(event))
                    if self._loaded is not None:
                        used = event.usage.prompt_tokens + event.usage.completion_tokens
                        self._composer.show_context(used, self._loaded.context_length)
        if isinstance(event, Finished):
            self._end_answer(event.timings.decode_tok_s)

    def _on_failure(self, exchange: Exchange | None, notice: AnswerFailed) -> None:
        reply = self._conversation.reply
        if exchange is not None and reply is not None:
            exchange.fail(notice.sentence)
            reply.fail(notice.sentence, notice.way_out)
        self._end_answer(0.0)

    def _end_answer(self, tok_s: float) -> None:
        if self.state == "answering":  # else another model is on its way already
            self._model_bar.end_reply(tok_s)
            self._look_for_obstacles()
            self._set_state("ready")

    def _look_for_obstacles(self) -> None:
        """Say that a model cannot see before it is asked to."""
        if self._loaded is None or self._loaded.info.vision:
            sentence = ""
        elif self._composer.pictures.squares:
            sentence = self.tr("{name} cannot see pictures: open a model that can, or remove what you added.")
        elif self.session.has_pictures:
            sentence = self.tr(
                "{name} cannot see the pictures of this chat: open a model that can, or begin a new chat."
            )
        else:
            sentence = ""
        name = display_name(self._loaded.info) if self._loaded else ""
        self._composer.set_obstacle(sentence.format(name=name))

    def _ending(self, finished: Finished) -> tuple[str, str]:
        """The line below a reply, and its tooltip."""
        why = {
            "stop": "",
            "length": self.tr("Ended at the length limit"),
            "context": self.tr("Ended: the context is full. Begin a new chat to go on."),
            "cancelled": self.tr("Stopped"),
        }[finished.reason]
        if finished.in_reasoning and finished.reason in ("stop", "length"):
            why = self.tr("Ended inside its reasoning, without an answer")
        usage, timings = finished.usage, finished.timings
        tokens = usage.completion_tokens
        count = self.tr("1 token") if tokens == 1 else self.tr("{n} tokens").format(n=tokens) if tokens else ""
        rate = speed(timings.decode_tok_s) if timings.decode_tok_s else ""
        details = self.tr(
            "First word after {first:.2f} s. Read {prompt} tokens, {cached} of them kept from before."
        ).format(first=timings.first_token_s, prompt=usage.prompt_tokens, cached=usage.cached_tokens)
        return " · ".join(part for part in (why, count, rate) if part), details

    def _set_state(self, state: ChatState) -> None:
        if state != self.state:
            self.state = state
            self._composer.set_ready(state in ("ready", "answering"))
            self._composer.set_busy(state == "answering")
            self._model_bar.models_button.setEnabled(state not in ("loading", "fetching"))
            self.state_changed.emit(state)
