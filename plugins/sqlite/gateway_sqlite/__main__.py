"""`python -m gateway_sqlite`: a backup of the file while gateways use it, and a check of it."""

from __future__ import annotations

import argparse
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from gateway_sqlite.config import SqliteConfig


def main() -> int:
    """Run the command of `python -m gateway_sqlite`. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gateway_sqlite", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    backup = commands.add_parser("backup", help="copy the file, while gateways use it")
    backup.add_argument("copy", type=Path, help="the new file")
    check = commands.add_parser("check", help="check the file for damage")
    for each in (backup, check):
        each.add_argument("--path", help="the store's file; default: that of the store 'sqlite'")
    arguments = parser.parse_args()
    path = SqliteConfig(path=arguments.path).file()
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source:
            if arguments.command == "backup":
                return _backup(source, arguments.copy)
            return _check(source, path)
    except sqlite3.Error as error:
        print(f"{str(path)!r}: {error}", file=sys.stderr)
        return 1


def _backup(source: sqlite3.Connection, copy: Path) -> int:
    if copy.exists():
        print(f"{str(copy)!r} exists; name a new file.", file=sys.stderr)
        return 1
    copy.touch(mode=0o600)
    try:
        with closing(sqlite3.connect(copy)) as target:
            # In one step: a copy in several steps would begin again with each write.
            source.backup(target)
            return _check(target, copy)
    except BaseException:
        copy.unlink(missing_ok=True)
        raise


def _check(database: sqlite3.Connection, path: Path) -> int:
    [found] = database.execute("PRAGMA integrity_check(1)").fetchone()
    print(f"{str(path)!r}: {found}")
    return int(found != "ok")


if __name__ == "__main__":
    sys.exit(main())
