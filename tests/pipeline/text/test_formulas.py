import pytest
from clozeworks.pipeline.text.wikitext.formulas import formula_text
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("tex", "text"),
    [
        # From English, Japanese and Latgalian articles.
        ("x", "x"),
        (r"x_1,x_2,\ldots,x_n", "x₁,x₂,…,xₙ"),
        ("ax^2+bx+c", "ax²+bx+c"),
        (r"\bar{x}", "x̄"),
        ("y_{i,j}", "yᵢ,ⱼ"),
        ("b^{th}", "bᵗʰ"),
        (r"\sin\alpha", "sin α"),
        (r"(\sin(\alpha))^{-1}", "(sin(α))⁻¹"),
        (r"b \in \{1,2,...,B\}", "b ∈ {1,2,...,B}"),
        (r"L_{1} L_{2}\quad", "L₁ L₂"),
        (r"\left( \frac{2}{3} \cdot 3\right)", "( 2/3 · 3)"),
        (r"90^\circ", "90°"),
        (r"L \subset \Sigma^*", "L ⊂ Σ*"),
        (r"n \in \mathbb{N}", "n ∈ ℕ"),
        (r"f''(x) &lt; 3", "f′′(x) < 3"),
        (r"x_1,\dotsc,x_n", "x₁,…,xₙ"),
        (r"\frac{(3+5)}{2} = 4", "(3+5)/2 = 4"),
        (r"\frac{ 2500+ 2700}{10}=2530.", "(2500+ 2700)/10=2530."),
        (r"S=\frac{\pi d^2}{4}", "S=πd²/4"),
        (r"\tfrac12\pi r", "1/2 πr"),
        (r"\sqrt{(x-a)^2+(y-b)^2}=r", "√((x-a)²+(y-b)²)=r"),
        (r"\sqrt2 + \sqrt{xy}", "√2 + √(xy)"),
        # No plain form.
        (r"\frac{ }{2}", None),
        (r"\sqrt[3]{2}", None),
        (r"\sum_{i=1}^n a_i", None),
        ("L_{1}^{R}", None),
        (r"\begin{cases} 1 & 2 \end{cases}", None),
        ("[[a]]", None),
        (r"\{\{a\}\}", None),
        ("x" * 200, None),
        (" ", None),
    ],
)
def test_simple_formulas_are_text(tex: str, text: str | None) -> None:
    assert formula_text(tex) == text


@given(st.text("\\{}_^ ab1'&;[]|alphrcsqt", max_size=60))
def test_no_markup_is_left(tex: str) -> None:
    text = formula_text(tex)
    if text is not None:
        assert text == " ".join(text.split())
        assert not any(mark in text for mark in ("\\", "^", "[[", "]]", "{{", "}}", "''", "\n"))
