"""Write simple TeX formulas as text, so that a formula does not cost its sentence.

"<math>x_1 \\ge \\alpha</math>" becomes "x₁ ≥ α". What has no plain form, such as a matrix, is None.
"""

import html
import re
import unicodedata

from .names import NAMES

_SYMBOLS = {name: name for name in NAMES.tex_functions.split()}
for _character, _names in NAMES.tex_symbols.items():
    _SYMBOLS |= dict.fromkeys(_names.split(), _character)
_DOUBLE_STRUCK = dict(zip("CHNPQRZ", "ℂℍℕℙℚℝℤ", strict=True))
_SMALL = {
    mark: {unicodedata.normalize("NFKC", small).replace("−", "-"): small for small in characters}
    for mark, characters in {
        "^": "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵀᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ",
        "_": "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎,ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ",
    }.items()
}
_ACCENTS = {"bar": "\u0304", "hat": "\u0302", "tilde": "\u0303", "vec": "\u20d7", "dot": "\u0307"}

_SPACE = re.compile(r"\\[,;:! ]|[~\s]+")
_FONT = re.compile(
    r"\\(?:mathrm|mathbf|mathit|mathsf|text|textrm|textit|operatorname|mbox|rm|bf|it)\s*"
    r"(?:\{([^{}\\]*)\}|(?![a-zA-Z{]))"
)
_ACCENTED = re.compile(rf"\\({'|'.join(_ACCENTS)})(?:\s*\{{([a-zA-Z])\}}| ([a-zA-Z]))")
_BLACKBOARD = re.compile(r"\\mathbb\s*\{?([CHNPQRZ])\}?")
_OPERAND = r"\s*(?:\{ *([^{}\\]*[^{}\\ ]) *\}|(\d))"
_FRACTION = re.compile(rf"\\[dt]?frac{_OPERAND}{_OPERAND}")
_ROOT = re.compile(rf"\\sqrt{_OPERAND}")
# What needs no brackets under a root, and in a fraction.
_NUMBER_OR_LETTER = re.compile(r"\d+|\w")
_FACTORS = re.compile(r"[^\W_]+|\([^()]*\)")
_COMMAND = re.compile(r"\\([a-zA-Z]+) ?")
_SCRIPT = re.compile(r"([_^])(?:\{([^{}]*)\}|([^{}\\]))")
_GROUP = re.compile(r"(?<!\\)\{([^{}]*)\}")
# Doubled brackets would be read as markup.
_NOT_PLAIN = re.compile(r"[\\^_{}&]|\[\[|\]\]")


def formula_text(tex: str) -> str | None:
    """Return a formula as text on one line, or None if it has no plain form.

    >>> formula_text(r"\\tfrac{1}{2} x^2 \\in \\mathbb{R}"), formula_text(r"\\sum_{i=1}^n")
    ('1/2 x² ∈ ℝ', None)
    """
    if len(tex) > 120:  # it is set on a line of its own, not part of a sentence
        return None
    text = _SPACE.sub(" ", html.unescape(tex)).replace("'", "′")
    text = _FONT.sub(r"\1", text)
    text = _ACCENTED.sub(lambda match: (match[2] or match[3]) + _ACCENTS[match[1]], text)
    text = _BLACKBOARD.sub(lambda match: _DOUBLE_STRUCK[match[1]], text)
    text = _COMMAND.sub(_symbol, text)
    text = _SCRIPT.sub(_script, text)
    text = _ROOT.sub(_operation, text)
    text = _FRACTION.sub(_operation, text)
    # Escaped braces are those of a set; the others group.
    text = text.replace(r"\{", "\ue000").replace(r"\}", "\ue001").replace(r"\%", "%")
    text = _GROUP.sub(r"\1", text)
    if _NOT_PLAIN.search(text):
        return None
    text = " ".join(text.replace("\ue000", "{").replace("\ue001", "}").split())
    if "{{" in text or "}}" in text:
        return None
    return unicodedata.normalize("NFC", text) or None


_RAISED_NUMBER = re.compile(r"[-−–+]?\d[\d.,]*|[-−–+]?\d*[A-Za-z](?:[-−–+]\d+)?")


def raised(text: str) -> str | None:
    """Return an exponent in raised characters, or after "^" if it has none.

    None if `text` is neither a number nor a variable, which is in italics unless it is one of the
    most usual: the end of an ordinal number stays as it is.

    >>> raised("-27"), raised("−10.5"), raised("''n''"), raised("th")
    ('⁻²⁷', '^−10.5', 'ⁿ', None)
    """
    plain = text.replace("''", "").replace(" ", "")
    if not _RAISED_NUMBER.fullmatch(plain):
        return None
    if plain.isalpha() and plain == text and plain not in "iknmxyz":
        return None
    characters = plain.replace("−", "-").replace("–", "-")
    if all(character in _SMALL["^"] for character in characters):
        return "".join(_SMALL["^"][character] for character in characters)
    return f"^{plain}"


def _operation(match: re.Match[str]) -> str:
    """Return a root or a fraction, a blank before the letter or digit behind it: "1/2 x"."""
    operands = list(filter(None, match.groups()))
    needs_none = _NUMBER_OR_LETTER if len(operands) == 1 else _FACTORS
    for index, operand in enumerate(operands):
        if not needs_none.fullmatch(operand):
            operands[index] = f"({operand})"
    text = "/".join(operands) if len(operands) > 1 else f"√{operands[0]}"
    next_character = match.string[match.end() : match.end() + 1]
    return f"{text} " if next_character.isalnum() else text


def _symbol(command: re.Match[str]) -> str:
    symbol = _SYMBOLS.get(command[1])
    if symbol is None:
        return command[0]
    is_letter = len(symbol) == 1 and symbol.isalpha()
    # The blank after "\\alpha x" is only for TeX; around operators it is welcome.
    if command[0].endswith(" ") and not is_letter:
        return f"{symbol} "
    next_character = command.string[command.end() : command.end() + 1]
    if len(symbol) > 1 and (next_character.isalpha() or next_character == "\\"):
        return f"{symbol} "
    return symbol


def _script(match: re.Match[str]) -> str:
    """Return an index or exponent in small characters, or as it is if it has none."""
    characters = _SMALL[match[1]]
    content = (match[2] if match[2] is not None else match[3]).replace(" ", "")
    if content in ("∘", "′", "*"):
        return content.replace("∘", "°")
    if not all(character in characters for character in content):
        return match[0]
    return "".join(characters[character] for character in content)
