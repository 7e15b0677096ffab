"""Names of the ways to sum a product, as the page has them."""

from __future__ import annotations

NAMES = {
    "plain": "plain half",
    "block_half": "blocks in half",
    "block_single": "blocks in single",
    "kahan": "Kahan in half",
    "single": "single",
}
