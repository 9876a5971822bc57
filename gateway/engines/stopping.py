"""Finding stop strings in streamed text."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Sequence

_NOWHERE = ""
"""In place of the character after the end of a stop string. It is equal to no character."""


class StopAutomaton:
    """Stop strings as one automaton (Aho and Corasick, 1975). It is immutable: many searches may share it.

    A state is the longest beginning of a stop string with which the text so far ends. Reading a character takes
    constant time, averaged over the text, whatever the number and the length of the stop strings. Building the
    automaton takes about a microsecond and 30 bytes for each of their characters.
    """

    __slots__ = ("_depth", "_owner", "fail", "firsts", "follow", "forks", "found", "stops")

    def __init__(self, stops: Iterable[str]) -> None:
        self.stops = tuple(dict.fromkeys(stop for stop in stops if stop))
        """The stop strings, without empty and repeated ones."""
        self.follow: list[str] = [_NOWHERE]
        """For each state, the character that leads from it to the state with the next number."""
        self.forks: dict[int, dict[str, int]] = {}
        """Maps a state to the other characters that lead from it to a longer state, with the numbers of these
        states."""
        self.fail = array("i", [0])
        """For each state, the longest other state with which its text ends."""
        self.found = array("i", [-1])
        """For each state, the index of the longest stop string with which its text ends; -1 if there is none."""
        self._depth = array("i", [0])
        self._owner = array("i", [0])
        """For each state, the index of a stop string that begins with its text."""
        for number, stop in enumerate(self.stops):
            self._add(number, stop)
        self._link()
        self.firsts = frozenset(stop[0] for stop in self.stops)
        """The first characters of the stop strings."""

    def text(self, state: int, *, less: int = 0) -> str:
        """The text of a state, without its last `less` characters."""
        return self.stops[self._owner[state]][: self._depth[state] - less]

    def length(self, state: int) -> int:
        """The length of a state's text in characters."""
        return self._depth[state]

    def _add(self, number: int, stop: str) -> None:
        """Add the states of a stop string. New states have consecutive numbers."""
        state = 0
        for at, char in enumerate(stop):
            following = self._next(state, char)
            if following < 0:
                self._extend(state, number, stop, at)
                break
            state = following
        else:
            self.found[state] = number

    def _extend(self, state: int, number: int, stop: str, at: int) -> None:
        first, more = len(self.follow), len(stop) - at
        if state == first - 1 and self.follow[state] is _NOWHERE:
            self.follow[state] = stop[at]
        else:
            self.forks.setdefault(state, {})[stop[at]] = first
        self.follow += stop[at + 1 :]
        self.follow.append(_NOWHERE)
        self.fail.extend([0] * more)
        self.found.extend([-1] * more)
        self.found[-1] = number
        self._depth.extend(range(at + 1, len(stop) + 1))
        self._owner.extend([number] * more)

    def _next(self, state: int, char: str) -> int:
        """The longer state to which `char` leads from `state`; -1 if there is none."""
        if self.follow[state] == char:
            return state + 1
        fork = self.forks.get(state)
        return -1 if fork is None else fork.get(char, -1)

    def _link(self) -> None:
        """Set `fail` and complete `found`, from shorter to longer states."""
        fail, found, step = self.fail, self.found, self._next
        waiting = deque([0])
        while waiting:
            state = waiting.popleft()
            children = list(self.forks.get(state, {}).items())
            if (char := self.follow[state]) is not _NOWHERE:
                children.append((char, state + 1))
            for char, child in children:
                waiting.append(child)
                if state:
                    shorter = fail[state]
                    while (to := step(shorter, char)) < 0 and shorter:
                        shorter = fail[shorter]
                    fail[child] = max(to, 0)
                    if found[child] < 0:
                        found[child] = found[fail[child]]


class StopStrings:
    """Finds the stop string that ends first; the longest, if several end at the same position.

    Holds back only text that may be the beginning of a stop string. The result does not depend on how the text is
    divided into chunks. The time depends only on the length of the text.
    """

    __slots__ = ("_automaton", "_state")

    def __init__(self, stops: Sequence[str] | StopAutomaton) -> None:
        """`stops` are the stop strings, or their automaton: several searches for the same stop strings may share it."""
        if stops and not isinstance(stops, StopAutomaton):
            stops = StopAutomaton(stops)
        self._automaton = stops if isinstance(stops, StopAutomaton) and stops.stops else None
        self._state = 0

    @property
    def held(self) -> str:
        """The text that is held back: the beginning of a possible stop string."""
        return "" if self._automaton is None else self._automaton.text(self._state)

    def feed(self, text: str, *, searching: bool = True) -> tuple[str, str | None, str]:
        """Add a chunk of text. Returns the text to release, the stop string that ended it or None, and the text after
        it.

        If `searching` is False, all text is released.
        """
        automaton, before = self._automaton, self._state
        if automaton is None or (not before and automaton.firsts.isdisjoint(text)):
            return text, None, ""
        if not searching:
            return self.rest() + text, None, ""
        follow, forks, fail, found = (
            automaton.follow, automaton.forks, automaton.fail, automaton.found,
        )  # fmt: skip
        state = before
        for at, char in enumerate(text, 1):
            while follow[state] != char:
                if (fork := forks.get(state)) is not None and (to := fork.get(char)) is not None:
                    state = to
                    break
                if not state:
                    break
                state = fail[state]
            else:
                state += 1
            if (number := found[state]) >= 0:
                self._state = 0
                stop = automaton.stops[number]
                return self._released(before, text[:at], len(stop)), stop, text[at:]
        self._state = state
        return self._released(before, text, automaton.length(state)), None, ""

    def rest(self) -> str:
        """The text that is still held back. To be called at the end of the output."""
        rest, self._state = self.held, 0
        return rest

    def _released(self, before: int, text: str, kept: int) -> str:
        """The text that was held back in the state `before`, and `text`, without the last `kept` characters of both
        together."""
        if not before:
            return text[: len(text) - kept]
        assert self._automaton is not None
        if kept <= len(text):
            return self._automaton.text(before) + text[: len(text) - kept]
        return self._automaton.text(before, less=kept - len(text))
