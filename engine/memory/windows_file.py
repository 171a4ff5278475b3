"""`RawFile` on Windows. Structures and constants are those of Microsoft's reference of the Win32 API."""

from __future__ import annotations

import ctypes
import sys
from ctypes import wintypes
from pathlib import Path

from engine.memory.raw_file import NotAFileError, State

GENERIC_READ = 0x8000_0000
FILE_SHARE_READ = 0x1
FILE_SHARE_DELETE = 0x4
OPEN_EXISTING = 3
FILE_FLAG_OVERLAPPED = 0x4000_0000
FILE_FLAG_NO_BUFFERING = 0x2000_0000
FILE_TYPE_DISK = 1
FILE_ATTRIBUTE_DIRECTORY = 0x10
ERROR_HANDLE_EOF = 38
ERROR_IO_PENDING = 997
MOST = 1 << 30
"""Bytes a read: their count has 32 bits, and must stay a multiple of a page."""
EPOCH = 116_444_736_000_000_000
"""1970 in units of 100 ns since 1601."""


class _Overlapped(ctypes.Structure):
    """OVERLAPPED: the offset of a read, and the event that tells that it is done."""

    _fields_ = (
        ("internal", ctypes.c_void_p),
        ("internal_high", ctypes.c_void_p),
        ("offset", wintypes.DWORD),
        ("offset_high", wintypes.DWORD),
        ("event", wintypes.HANDLE),
    )


class _Information(ctypes.Structure):
    """BY_HANDLE_FILE_INFORMATION."""

    _fields_ = (
        ("attributes", wintypes.DWORD),
        ("created", wintypes.FILETIME),
        ("accessed", wintypes.FILETIME),
        ("written", wintypes.FILETIME),
        ("volume", wintypes.DWORD),
        ("size_high", wintypes.DWORD),
        ("size_low", wintypes.DWORD),
        ("links", wintypes.DWORD),
        ("index_high", wintypes.DWORD),
        ("index_low", wintypes.DWORD),
    )


if sys.platform == "win32":

    class WindowsFile:
        """Nobody else can write to the file while it is open; it can be renamed and deleted.

        The handle is asynchronous: the system would let reads of a synchronous one wait for each other.
        """

        def __init__(self, path: Path, *, direct: bool) -> None:
            kernel = self._kernel = ctypes.WinDLL("kernel32", use_last_error=True)
            kernel.CreateFileW.restype = wintypes.HANDLE
            kernel.CreateFileW.argtypes = (
                wintypes.LPCWSTR,
                wintypes.DWORD,
                wintypes.DWORD,
                wintypes.LPVOID,
                wintypes.DWORD,
                wintypes.DWORD,
                wintypes.HANDLE,
            )
            kernel.CreateEventW.restype = wintypes.HANDLE
            kernel.CreateEventW.argtypes = (wintypes.LPVOID, wintypes.BOOL, wintypes.BOOL, wintypes.LPCWSTR)
            kernel.CloseHandle.argtypes = (wintypes.HANDLE,)
            kernel.GetFileType.argtypes = (wintypes.HANDLE,)
            kernel.GetFileInformationByHandle.argtypes = (wintypes.HANDLE, wintypes.LPVOID)
            kernel.ReadFile.argtypes = (
                wintypes.HANDLE,
                wintypes.LPVOID,
                wintypes.DWORD,
                wintypes.LPVOID,
                wintypes.LPVOID,
            )
            kernel.GetOverlappedResult.argtypes = (
                wintypes.HANDLE,
                wintypes.LPVOID,
                wintypes.LPVOID,
                wintypes.BOOL,
            )
            if path.is_dir():  # CreateFileW would say that access is denied
                raise NotAFileError("a folder")
            handle = kernel.CreateFileW(
                str(path),
                GENERIC_READ,
                FILE_SHARE_READ | FILE_SHARE_DELETE,
                None,
                OPEN_EXISTING,
                FILE_FLAG_OVERLAPPED | (FILE_FLAG_NO_BUFFERING if direct else 0),
                None,
            )
            if handle == wintypes.HANDLE(-1).value:
                raise ctypes.WinError(ctypes.get_last_error())
            self._handle = handle
            if kernel.GetFileType(handle) != FILE_TYPE_DISK:
                raise NotAFileError("a device or a pipe")

        def read_some(self, into: memoryview, offset: int) -> int:
            kernel, size = self._kernel, min(len(into), MOST)
            event = kernel.CreateEventW(None, True, False, None)
            if not event:
                raise ctypes.WinError(ctypes.get_last_error())
            try:
                request = _Overlapped(offset=offset & 0xFFFF_FFFF, offset_high=offset >> 32, event=event)
                room = (ctypes.c_char * size).from_buffer(into)
                count = wintypes.DWORD()
                done = kernel.ReadFile(self._handle, room, size, None, ctypes.byref(request))
                error = 0 if done else ctypes.get_last_error()
                if error in (0, ERROR_IO_PENDING):
                    # `request` and `room` must live until the system is done with them, so it is waited for here.
                    done = kernel.GetOverlappedResult(self._handle, ctypes.byref(request), ctypes.byref(count), True)
                    error = 0 if done else ctypes.get_last_error()
            finally:
                kernel.CloseHandle(event)
            if error == ERROR_HANDLE_EOF:
                return 0
            if error:
                raise ctypes.WinError(error)
            return count.value

        def state(self) -> State:
            told = self._information()
            written = (told.written.dwHighDateTime << 32) + told.written.dwLowDateTime
            return State((told.size_high << 32) + told.size_low, (written - EPOCH) * 100)

        def identity(self) -> tuple[int, int]:
            told = self._information()
            return told.volume, (told.index_high << 32) + told.index_low

        def drop_cached(self, offset: int, nbytes: int) -> None:
            """Windows gives this memory to whoever asks for some, and knows no such request."""

        def _information(self) -> _Information:
            told = _Information()
            if not self._kernel.GetFileInformationByHandle(self._handle, ctypes.byref(told)):
                raise ctypes.WinError(ctypes.get_last_error())
            return told

        def __del__(self) -> None:
            if hasattr(self, "_handle"):
                self._kernel.CloseHandle(self._handle)
