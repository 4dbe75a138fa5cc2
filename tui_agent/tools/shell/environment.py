"""The environment of a child process: the user's, without secrets, and set for plain output.

Variables that change what a command means are removed: with ``CDPATH``, a plain ``cd src`` may go elsewhere. Git is
told to ignore a bare repository in the project (git-config(1), ``safe.bareRepository``), since its configuration can
name programs to run.

Variables whose names suggest a secret are removed; one that a command needs can be allowed by name. A secret under an
innocent name is not recognised.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache

SECRET_NAMES = (
    r"(ANTHROPIC|GEMINI|OPENAI|OLLAMA|MISTRAL|GROQ|OPENROUTER|DEEPSEEK|COHERE|XAI|HUGGINGFACE)_.*",
    r"GOOGLE_.*(KEY|CREDENTIALS|SECRET|TOKEN).*|CLOUDSDK_AUTH_.*",
    r"AWS_(ACCESS_KEY_ID|SECRET.*|SESSION_TOKEN|BEARER_TOKEN.*)|AZURE_.*(KEY|SECRET|PASSWORD|TOKEN).*",
    r"(.*_)?(API_?KEYS?|ACCESS_KEY|SECRET_KEY|PRIVATE_KEY|ENCRYPTION_KEY|MASTER_KEY|AUTH_?KEY)(_.*)?",
    r"(.*_)?(TOKENS?|PATS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|PWD_HASH|CREDENTIALS?|COOKIES?)(_(ID|BASE64|B64))?",
    r"(.*[A-Z])?(TOKEN|SECRET|PASSWORD|APIKEY)",
    r"DATABASE_URL|.*_(DSN|CONNECTION_STRING)|REDIS_URL|MONGODB?_URI|PGPASSWORD|MYSQL_PWD|NPM_CONFIG_.*AUTH.*|.*_WEBHOOK(_URL)?",
)
"""Patterns of the full names, in any case, of variables that are removed."""

_WOULD_COLOUR = frozenset({"FORCE_COLOR", "CLICOLOR_FORCE", "COLORTERM", "PY_COLORS", "GCC_COLORS"})
_FOR_READING = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    # Python buffers output into a pipe: the output of a run that is killed would be lost.
    "PYTHONUNBUFFERED": "1",
}


def is_secret(name: str) -> bool:
    """Whether a variable of this name is taken for a secret."""
    return _secret().fullmatch(name) is not None


@cache
def _secret() -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in SECRET_NAMES), re.IGNORECASE)


def child_environment(environment: Mapping[str, str], keep: Iterable[str] = ()) -> dict[str, str]:
    """`environment` without secrets, except those named in `keep`, and set for plain output without colours."""
    kept = frozenset(keep)
    clean = {
        name: value
        for name, value in environment.items()
        if name in kept or not (is_secret(name) or name in _WOULD_COLOUR)
    }
    clean.pop("CDPATH", None)
    return clean | _FOR_READING | _for_git(clean)


def _for_git(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that add a setting for git, after those already in the environment."""
    count = environment.get("GIT_CONFIG_COUNT") or "0"
    if not count.isdecimal():
        return {}  # git refuses to run with it, and says so
    return {
        "GIT_CONFIG_COUNT": str(int(count) + 1),
        f"GIT_CONFIG_KEY_{count}": "safe.bareRepository",
        f"GIT_CONFIG_VALUE_{count}": "explicit",
    }
