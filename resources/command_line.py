"""What every command does with its output and with signals: readers that leave, full disks, interrupts.

Belongs here: the frame around a command. Does not belong here: arguments, tables, what a command does.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable


def heed_interrupts() -> None:
    """Take SIGINT as a program in the foreground does.

    A shell starts background commands with SIGINT ignored, and Dagster lets SIGTERM do what SIGINT does. The processes
    that it starts to follow a step's output would then ignore the SIGTERM that ends them: a minute's wait a step.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


def run_command(command: Callable[[], object]) -> None:
    """Run `command`, which exits by itself and explains every error of its own.

    A closed pipe ends the process by SIGPIPE, as it ends other programs of a pipeline. Output that can't be written is
    one line on standard error and exit code 2. Characters that its encoding lacks
    are written as escapes.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        try:
            command()
        finally:
            sys.stdout.flush()
    except OSError as error:
        print(f"standard output can't be written: {error.strerror or error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered has nowhere to go
        sys.exit(2)
    finally:
        signal.signal(signal.SIGPIPE, before)
