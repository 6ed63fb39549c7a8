"""What holds for every test. Started in the background too, Dagster's runs end the processes that they start."""

from resources.command_line import heed_interrupts

heed_interrupts()
