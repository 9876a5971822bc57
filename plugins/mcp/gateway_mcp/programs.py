"""Whether the programs of configured servers can be started."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path


def why_not_started(command: str, env: Mapping[str, str], cwd: str | None) -> str | None:
    """Why the program `command` cannot be started in the folder `cwd`, as a sentence; None if it can. Nothing is started."""
    try:
        return _reason(command, env, cwd)
    except OSError as error:  # such as a folder of another user
        return f"{error.filename!r} cannot be reached by this user: {error.strerror}."


def _reason(command: str, env: Mapping[str, str], cwd: str | None) -> str | None:
    folder = Path(cwd or ".")
    if not folder.is_dir():
        return f"its working folder {str(folder)!r} (cwd) does not exist."
    if not os.path.dirname(command):  # as the system decides it
        path = env.get("PATH", os.environ.get("PATH", os.defpath))
        if shutil.which(command, path=path) is None:
            return f"the program {command!r} is not installed: PATH ({path}) has none of this name that may be executed."
        return None
    program = folder / command
    relative = "" if program.is_absolute() else f" (relative to {str(folder.absolute())!r})"
    if not program.exists():
        return f"there is no program {command!r}{relative}."
    if not program.is_file():
        return f"{command!r}{relative} is no file."
    if not os.access(program, os.X_OK):
        return f"{command!r}{relative} may not be executed by this user: `chmod +x` permits it."
    return None
