"""The set-up program's one exception."""


class SetupError(Exception):
    """What is wrong and what to do, in one line, for the person at the terminal."""
