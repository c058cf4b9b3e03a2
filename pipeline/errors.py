"""The one exception for mistakes that the user can fix."""


class UserError(Exception):
    """The user's input is wrong; the message names the fault and says what to do.

    The command line prints the message on one line and exits with code 2, without a traceback.
    """
