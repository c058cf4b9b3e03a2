"""The one exception for mistakes that the user can mend."""


class UserError(Exception):
    """Something the user typed or gave is wrong; the message names it and says what to do.

    The command line prints the message on one line and exits with code 2, without a traceback.
    """
