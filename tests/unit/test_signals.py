"""How commands take signals when a shell started them in the background."""

import signal
import subprocess
import sys

SCRIPT = """
import signal, subprocess
from resources.command_line import heed_interrupts
heed_interrupts()
signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))  # as Dagster does
child = subprocess.Popen(["sleep", "60"])
child.terminate()
print(child.wait(timeout=20))
"""


def test_children_of_a_background_command_end_when_they_are_told_to() -> None:
    def in_the_background() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        preexec_fn=in_the_background,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert int(done.stdout) == -signal.SIGTERM
