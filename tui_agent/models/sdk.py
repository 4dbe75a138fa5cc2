"""What importing a large SDK leaves behind."""

import gc
from functools import cache


@cache
def settle(sdk: str) -> None:
    """Take what `sdk` made at its import out of the garbage collector's sight; once per SDK.

    It lives as long as the process, and a full collection that walks it holds up every thread for a tenth of a second.
    """
    gc.freeze()
