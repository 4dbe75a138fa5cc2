"""Amounts of money as people and models read them."""

from typing import Final

CENT: Final = 0.01


def money_text(usd: float | None) -> str:
    """US dollars with as many decimals as tell something: ``$0``, ``$0.0042``, ``$0.104``, ``$3.46``; None: ``$?``."""
    if usd is None:
        return "$?"
    if usd == 0:
        return "$0"
    if usd < 0:
        return f"-{money_text(-usd)}"
    if usd < 0.00005:
        return "<$0.0001"
    if usd < CENT:
        return f"${usd:.4f}"
    return f"${usd:.3f}" if usd < 0.9995 else f"${usd:,.2f}"
