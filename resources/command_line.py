"""What every command does with its standard output: readers that leave, full disks, encodings that lack characters.

Belongs here: the frame around a command. Does not belong here: arguments, tables, what a command does.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable


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
