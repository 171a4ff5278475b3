"""What runs in the engine's thread: it owns the engine, takes requests, and answers with notices."""

from __future__ import annotations

import logging
from functools import partial

from PySide6.QtCore import QObject, Signal, Slot

from app.engine_protocol import ChatEngine, EngineLoader
from app.places import log_file
from app.requests import (
    Answer,
    AnswerFailed,
    Ask,
    Fetching,
    LoadCancelled,
    Loaded,
    LoadFailed,
    Loading,
    LoadModel,
    Notice,
    Request,
    Unload,
    Unloaded,
    WayOut,
)
from app.throttle import Every
from engine.cancel import Cancel, Cancelled
from engine.errors import ContextError, MillstreamError, ModelFileError
from engine.types import Finished, PrefillProgress

log = logging.getLogger(__name__)

PROGRESS_INTERVAL_S = 0.05


class Worker(QObject):
    """Handles one request at a time, in the order of their arrival."""

    notice = Signal(object)

    def __init__(self, load: EngineLoader) -> None:
        super().__init__()
        self._load_engine = load
        self._engine: ChatEngine | None = None
        self._progress = Every(PROGRESS_INTERVAL_S)

    @Slot(object, object)
    def handle(self, request: Request, cancel: Cancel) -> None:
        match request:
            case LoadModel():
                self._say(self._load(request, cancel))
            case Ask():
                self._answer(request, cancel)
            case Unload():
                self._unload()
                self._say(Unloaded())

    @Slot()
    def shut_down(self) -> None:
        """Let go of the model, then of the thread."""
        self._unload()
        self.thread().quit()

    def _load(self, request: LoadModel, cancel: Cancel) -> Notice:
        try:
            from engine.memory.machine import free_memory, total_memory  # numpy is not the window's to wait for

            self._unload()
            cancel.check()
            load = self._load_engine
            if request.budgets is not None:
                load = partial(load, budgets=request.budgets)
            self._engine = load(request.model, self._report, cancel)
            return Loaded(
                info=self._engine.info,
                context_length=self._engine.context_length,
                plan=self._engine.plan,
                machine_bytes=total_memory(),
                free_bytes=free_memory(),
            )
        except Cancelled:
            return LoadCancelled()
        except BaseException as error:  # a panic in a library written in Rust is not an Exception
            return LoadFailed(self._sentence(error))

    def _answer(self, request: Ask, cancel: Cancel) -> None:
        try:
            if self._engine is None:
                raise MillstreamError(self.tr("No model is loaded."))
            events = self._engine.chat(request.messages, request.settings, cancel=cancel)
            finished = False
            for event in events:
                if (
                    isinstance(event, PrefillProgress)
                    and event.done < event.total
                    and not (event.picture or self._progress.due())
                ):
                    continue
                finished = isinstance(event, Finished)
                self._say(Answer(request.request_id, event))
            if not finished:
                raise RuntimeError("the reply ended without a Finished event")
        except BaseException as error:
            self._say(AnswerFailed(request.request_id, self._sentence(error), _way_out(error)))

    def _unload(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _report(self, progress: Fetching | Loading) -> None:
        if progress.done >= progress.total or self._progress.due():
            self._say(progress)

    def _sentence(self, error: BaseException) -> str:
        """What the person is told. A fault of ours is one plain sentence to them, and a traceback in the log."""
        if isinstance(error, MillstreamError):
            log.info("%s: %s", type(error).__name__, error)
            return str(error)
        if isinstance(error, MemoryError):
            log.warning("the system refused memory", exc_info=error)
            return self.tr("The system refused the memory for this. Close other programs, or open a smaller model.")
        log.error("a fault in the engine's thread", exc_info=error)
        return self.tr(
            "Something went wrong inside Millstream. Trying again may help; what happened stands in {log}."
        ).format(log=log_file())

    def _say(self, notice: Notice) -> None:
        self.notice.emit(notice)


def _way_out(error: BaseException) -> WayOut:
    if isinstance(error, ContextError):
        return "new chat"
    return "open again" if isinstance(error, ModelFileError) else "retry"
