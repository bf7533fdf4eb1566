"""The one exception that the command line turns into one line and a non-zero exit."""


class HarnessError(Exception):
    """Something a user can act on: the message says what is wrong and what to do, in one line."""


class ServerError(HarnessError):
    """A server that did not start, died, or is not what was asked for."""


class BuildError(HarnessError):
    """A model or a workload that cannot be made from its configuration."""


class RefusalError(HarnessError):
    """A cell that cannot run on this machine, where others can."""
