"""Reading questions and commands of a chat on a terminal."""

from __future__ import annotations

from contextlib import suppress

from gateway.sdk import ConfigurationError
from gateway.sdk.commands import ApiClient, ApiError, one_line, without_surrogates
from gateway_terminal_chat.conversation import ChatSession
from gateway_terminal_chat.images import image_part
from gateway_terminal_chat.screen import Screen

PROMPT = "> "
INTERRUPTED = 130
"""The exit code after Ctrl-C."""


class ChatLoop:
    """Reads questions and commands from the terminal until the user leaves."""

    def __init__(self, conversation: ChatSession, client: ApiClient, screen: Screen) -> None:
        self._conversation = conversation
        self._client = client
        self._screen = screen
        self._interrupted = False
        """Whether the last key was Ctrl-C."""
        self._help = ""
        conversation.allows = self._allows

    def run(self, help_text: str) -> int:
        """Read and answer messages until the user ends the chat. Returns the exit code."""
        with suppress(ImportError):
            import readline  # noqa: F401  # gives `input` line editing and a history
        self._help = help_text
        shown = one_line(self._conversation.model)
        self._screen.line(f"{shown} at {self._client.url}. /help shows the commands.")
        while True:
            try:
                line = without_surrogates(input(PROMPT)).strip()
                if line in ("/quit", "/exit"):
                    return 0
                if line:
                    self._interrupted = False
                    self._do(line)
            except EOFError:
                self._screen.line("")
                return 0
            except KeyboardInterrupt:
                self._screen.line("")
                if self._interrupted:
                    return INTERRUPTED
                self._interrupted = True
                self._screen.line("Stopped. Ctrl-C again, or Ctrl-D, leaves.")

    def _do(self, line: str) -> None:
        command, _, argument = line.partition(" ")
        argument = argument.strip()
        try:
            match command:
                case "/help":
                    self._screen.line(self._help)
                case "/new":
                    self._conversation.clear()
                    self._conversation.images = []
                    self._screen.line("A new conversation.")
                case "/model":
                    self._model(argument)
                case "/image":
                    path = argument.strip("'\"")
                    self._conversation.images.append(image_part(path))
                    self._screen.line("The image is sent with the next question.")
                case _ if command.startswith("/") and command[1:].isalpha():
                    self._screen.line(f"There is no command {command}. /help shows the commands.")
                case _:
                    self._conversation.ask(line)
        except (ApiError, ConfigurationError) as error:
            self._screen.line(one_line(str(error)))

    def _model(self, name: str) -> None:
        models = self._client.models()
        if name and any(model.id == name for model in models):
            self._conversation.model = name
            self._screen.line(f"The next answers are by {one_line(name)}.")
            return
        if name:
            self._screen.line(f"There is no model {one_line(name)}.")
        for model in models:
            shown = one_line(model.state or "")
            state = "" if shown in ("", "loaded", "ready") else f" ({shown})"
            here = " *" if model.id == self._conversation.model else ""
            self._screen.line(f"  {one_line(model.id)}{state}{here}")

    def _allows(self, call: str) -> bool:
        self._screen.line(f"The model wants to call {one_line(call)}")
        return input("Allow it? [y/N] ").strip().lower() in ("y", "yes")
