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
    """SIGINT, SIGTERM, and also SIGHUP if its handler is the default one.

    It is not the default if `nohup` ignores SIGHUP, and in workers, which leave it to their supervisor
    (`leave_hangup`).
    """
    signals = [signal.SIGINT, signal.SIGTERM]
    if HANGUP is not None and signal.getsignal(HANGUP) is signal.SIG_DFL:
        signals.append(HANGUP)
    return signals


def leave_hangup() -> None:
    """Ignore SIGHUP in this process, a worker. A closed terminal sends it to the workers and also to their supervisor,
    which stops them.

    Uses a handler instead of SIG_IGN, which programs started by this process would inherit.
    """
    if HANGUP is not None and signal.getsignal(HANGUP) is signal.SIG_DFL:
        signal.signal(HANGUP, lambda *_: None)
