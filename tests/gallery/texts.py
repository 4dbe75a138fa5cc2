"""Long and hostile texts for the pictures."""

from typing import Final

HOSTILE_PROMPT: Final = "[bold red]not bold[/] \x1b[31mnot red\x1b[0m \x1b]0;no title\x07and no title"

HOSTILE_COMMAND: Final = "printf '\x1b[2Jcleared?' \u202etxt.exe # [link=x]"

HOSTILE_OUTPUT: Final = (
    "\x1b[31mred?\x1b[0m \x1b[5;5Hmoved? \x1b]8;;https://example.com\x07link?\x1b]8;;\x07\n"
    "bidi \u202eabc\u202c zero\u200bwidth \ufeffmark\n"
    "wide 漢字 かな 한글 emoji 👩‍👩‍👧 🇩🇪 ✈️\n"
)

HOSTILE_ANSWER: Final = (
    """[bold]Markup stays text[/bold], so does <b>HTML</b> and `[red]code[/]`.

| Kind | Sample | Width |
|---|---|---:|
| wide | 漢字 かな 한글 | 14 |
| emoji | 👩‍👩‍👧 🇩🇪 ✈️ 👍🏽 | 8 |
| combining | e\u0301 n\u0303 Z\u0351\u036b\u0343\u036a\u0302a\u0310\u0346 | 7 |
| bidi | \u202eabc\u202c \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 | 15 |
| tab | a\tb | 5 |
| lone | \ud800 \x07 \x9b1m | 1 |

A word without an end: """
    + "abcdefghij" * 14
)

LONG_ANSWER: Final = '''## Rounding

Python rounds **half to even**; money is mostly rounded *half up*. See [decimal](https://docs.python.org/3/library/decimal.html).

| Mode | 2.5 | -2.5 | 2.675 to cents | Where it is the rule |
|---|---:|---:|---:|---|
| `ROUND_HALF_EVEN` | 2 | -2 | 2.68 | the default; no drift in long sums |
| `ROUND_HALF_UP` | 3 | -3 | 2.68 | invoices and taxes in most countries |
| `ROUND_HALF_DOWN` | 2 | -2 | 2.67 | seldom |
| `ROUND_DOWN` | 2 | -2 | 2.67 | cutting off, as some statutory interest rules ask for in so many words |

1. Keep exact amounts as `Decimal`:
   - never build one from a `float`
   - quantize once, at the end
2. Say which mode you mean:

```python
from decimal import ROUND_HALF_UP, Decimal

CENT = Decimal("0.01")


def rounded(amount: Decimal) -> Decimal:
    """To whole cents, as an invoice does it."""
    return amount.quantize(CENT, rounding=ROUND_HALF_UP)  # a comment so long that the line has to wrap


for text in ("2.675", "2.665", "-0.005"):
    print(f"{text:>8} {rounded(Decimal(text)):>8}")
```

> A sum of rounded amounts is not the rounded sum.

- [x] amounts are exact
- [ ] the report says how it rounds
'''
