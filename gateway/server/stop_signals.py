"""The signals that stop a server gracefully."""

from __future__ import annotations

import os
import signal
from typing import Final

HANGUP: Final[signal.Signals | None] = getattr(signal, "SIGHUP", None)
"""SIGHUP; None on systems that do not have it (Windows)."""


def _has_terminal() -> bool:
    """Whether the process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


_had_terminal = _has_terminal()


def terminal_is_gone() -> bool:
    """Whether the process had a controlling terminal when it started, and has none now."""
    return _had_terminal and not _has_terminal()


def stop_signals() -> list[signal.Signals]:
    """SIGINT, SIGTERM, and SIGHUP where nothing else has been decided about it.

    `nohup` ignores SIGHUP, and workers leave it to their supervisor (`leave_hangup`).
    """
    signals = [signal.SIGINT, signal.SIGTERM]
    if HANGUP is not None and signal.getsignal(HANGUP) is signal.SIG_DFL:
        signals.append(HANGUP)
    return signals


def leave_hangup() -> None:
    """Let SIGHUP have no effect on this process. A closed terminal sends it to workers and to their supervisor, which stops
    them.

    Not SIG_IGN, which programs that this process starts would inherit.
    """
    if HANGUP is not None and signal.getsignal(HANGUP) is signal.SIG_DFL:
        signal.signal(HANGUP, lambda *_: None)
