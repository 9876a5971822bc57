"""The command `gateway doctor`."""

from __future__ import annotations

import argparse

from gateway.process.logs import set_up_logging
from gateway.sdk import ConfigurationError
from gateway.sdk.commands import add_config_argument
from gateway_doctor.report import report_lines
from gateway_doctor.self_test import self_test


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Check the configuration, the plugins, the models' files, the tools' settings, the store and the "
        "port, without opening a model. With --generate, open the models instead and check by real generations that "
        "their engines keep their contract. One line per check; the exit code is 1 if one failed."
    )
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="with --generate: the one model to test, as for serve (default: all of the configuration)",
    )
    parser.add_argument(
        "--generate", action="store_true", help="test the engines; takes a minute or more per model"
    )
    parser.add_argument(
        "--engine", metavar="NAME", help="with --generate: MODEL's engine, or only models with it"
    )
    add_config_argument(parser)


def examine(arguments: argparse.Namespace) -> int:
    """Run the checks and print each result as it is available."""
    set_up_logging("error")
    if arguments.generate:
        return self_test(arguments)
    if arguments.model is not None or arguments.engine is not None:
        raise ConfigurationError("MODEL and --engine go with --generate")
    failed = False
    for check in report_lines(arguments):
        print(check, flush=True)
        failed = failed or check.outcome == "FAIL"
    print("No model was opened: `gateway doctor --generate` opens them and tests their engines.")
    return 1 if failed else 0
