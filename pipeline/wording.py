"""Write names and numbers as text, for terminals, reports and cards."""


def in_words(name: str) -> str:
    """Return the name of a counter, metric or option in words.

    >>> in_words("repeated_lines")
    'repeated lines'
    """
    return name.replace("_", " ")


def with_commas(value: object) -> object:
    """Return an integer as text with its thousands apart, any other value as it is.

    >>> with_commas(12345), with_commas(True)
    ('12,345', True)
    """
    if type(value) is int:  # not `isinstance`, because a boolean is an int too
        return f"{value:,}"
    return value


def without_formula(text: str) -> str:
    """Return text for a CSV that a spreadsheet will not take for a formula.

    >>> without_formula("=1+1")
    "'=1+1"
    """
    if text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{text}"
    return text
