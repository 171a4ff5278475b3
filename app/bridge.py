"""The window's side of the engine's thread. Nothing here waits for the engine, but `close` for a bounded time."""

from __future__ import annotations

from PySide6.QtCore import QDeadlineTimer, QObject, QThread, Signal

from app.engine_protocol import EngineLoader
from app.requests import Ask, LoadModel, Request, Unload
from app.worker import Worker
from engine.cancel import Cancel
from engine.types import Budgets, Message, Settings

PATIENCE_S = 10.0


class Bridge(QObject):
    """Requests go out and notices come back by queued signals; both are plain frozen dataclasses.

    The thread starts with the first request. Once it runs, `close` must be called before the bridge goes.
    """

    notice = Signal(object)
    """A Notice of `app.requests`, in this object's thread."""

    _request = Signal(object, object)
    _shut_down = Signal()

    def __init__(self, load: EngineLoader, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._cancel = Cancel()
        self._closed = False
        self._thread = QThread()
        self._thread.setObjectName("engine")
        self._worker = Worker(load)
        self._worker.moveToThread(self._thread)
        self._worker.notice.connect(self.notice)
        self._request.connect(self._worker.handle)
        self._shut_down.connect(self._worker.shut_down)

    def load(self, model: str, budgets: Budgets | None = None) -> None:
        self._send(LoadModel(model, budgets))

    def ask(self, request_id: int, messages: tuple[Message, ...], settings: Settings) -> None:
        self._send(Ask(request_id, messages, settings))

    def unload(self) -> None:
        self._send(Unload())

    def cancel(self) -> None:
        """Stop everything that was requested so far. The notices say when it has stopped."""
        self._cancel.set()
        self._cancel = Cancel()

    def close(self, patience_s: float = PATIENCE_S) -> bool:
        """Cancel, let go of the model and end the thread: → whether it has ended. A second call does not wait again."""
        if self._closed or not self.running:
            self._closed = True
            return not self.running
        self._closed = True
        self.cancel()
        self._shut_down.emit()
        return self._thread.wait(QDeadlineTimer(round(patience_s * 1000)))

    @property
    def running(self) -> bool:
        return self._thread.isRunning()

    def _send(self, request: Request) -> None:
        if self._closed:
            return
        self._thread.start()
        self._request.emit(request, self._cancel)
