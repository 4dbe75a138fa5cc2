"""The environment of a child process: the user's, without secrets, and set for plain output.

Variables that change what a command means are removed: with ``CDPATH``, a plain ``cd src`` may go elsewhere. Git is
told to ignore a bare repository in the project (git-config(1), ``safe.bareRepository``), since its configuration can
name programs to run.

Outside the sandbox, variables whose names suggest a secret are removed; one that a command needs can be allowed by
name. A secret under an innocent name is not recognised. In the sandbox only known variables are kept.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache

from tui_agent.regex import regex

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

KNOWN_NAMES = (
    r"PATH|USER|LOGNAME|SHELL|HOSTNAME|LANG|LANGUAGE|LC_[A-Z]+|TZ|CI|SOURCE_DATE_EPOCH|DEBIAN_FRONTEND|NIX_PATH|MANPATH",
    r"VIRTUAL_ENV|CONDA_(PREFIX|DEFAULT_ENV|EXE|SHLVL)|PYENV_(ROOT|VERSION)|PYTHON(HOME|PATH|UTF8|HASHSEED|WARNINGS)",
    r"PYTHON(DONTWRITEBYTECODE|UNBUFFERED|IOENCODING|STARTUP|OPTIMIZE|NOUSERSITE|BREAKPOINT|PYCACHEPREFIX)|PIPENV_VENV_IN_PROJECT",
    r"(PIP|UV)_(INDEX_URL|EXTRA_INDEX_URL|INDEX|DEFAULT_INDEX|FIND_LINKS|NO_INDEX|TRUSTED_HOST|CERT|CONSTRAINT|DEFAULT_TIMEOUT)",
    r"PIP_(DISABLE_PIP_VERSION_CHECK|REQUIRE_VIRTUALENV|BREAK_SYSTEM_PACKAGES)|UV_(PYTHON|LINK_MODE|PROJECT_ENVIRONMENT)|POETRY_VIRTUALENVS_\w+",
    r"NODE_(ENV|PATH|OPTIONS|EXTRA_CA_CERTS)|NPM_CONFIG_(REGISTRY|FUND|AUDIT|UPDATE_NOTIFIER|STRICT_SSL)|NVM_(DIR|BIN|INC)",
    r"VOLTA_HOME|FNM_(DIR|MULTISHELL_PATH)|PNPM_HOME|BUN_INSTALL|COREPACK_\w+|YARN_REGISTRY",
    r"GO(ROOT|OS|ARCH|ARM|AMD64|FLAGS|PROXY|SUMDB|PRIVATE|NOSUMDB|TOOLCHAIN|WORK|111MODULE|EXPERIMENT|MAXPROCS|GC)|CGO_\w+",
    r"RUSTUP_(HOME|TOOLCHAIN|AUTO_INSTALL|DIST_SERVER|UPDATE_ROOT)|RUST(FLAGS|_BACKTRACE|_LOG|C_WRAPPER|DOCFLAGS)",
    r"CARGO_(TARGET_DIR|BUILD_\w+|INCREMENTAL|NET_OFFLINE|HTTP_CAINFO|TERM_\w+|ENCODED_RUSTFLAGS)",
    r"(JAVA|JDK|MAVEN|M2|GRADLE|ANT|SCALA|KOTLIN|GROOVY)_HOME|(MAVEN|GRADLE|SBT|JAVA_TOOL)_OPTS|ANDROID_(HOME|SDK_ROOT|NDK_HOME|NDK_ROOT)",
    r"DOTNET_(ROOT|CLI_TELEMETRY_OPTOUT|NOLOGO)|GEM_(HOME|PATH)|RBENV_(ROOT|VERSION)|RUBY(LIB|OPT)|BUNDLE_(PATH|GEMFILE|WITHOUT)",
    r"PERL5LIB|PERL_MM_OPT|LUA_(PATH|CPATH)|R_(HOME|LIBS|LIBS_USER)|JULIA_\w*(DEPOT_PATH|NUM_THREADS)|OPAM_SWITCH_PREFIX|OCAML\w*_PATH",
    r"CC|CXX|CPP|LD|AR|AS|NM|FC|CFLAGS|CXXFLAGS|CPPFLAGS|LDFLAGS|FFLAGS|MAKEFLAGS|MAKELEVEL|CPATH|C_INCLUDE_PATH|CPLUS_INCLUDE_PATH",
    r"LIBRARY_PATH|LD_LIBRARY_PATH|PKG_CONFIG(_\w*PATH)?|CMAKE_(PREFIX_PATH|GENERATOR|BUILD_TYPE|BUILD_PARALLEL_LEVEL)|CCACHE_\w*DIR",
    r"CUDA_(HOME|PATH|VISIBLE_DEVICES)|OMP_NUM_THREADS|MKL_NUM_THREADS|XDG_(DATA|CONFIG)_DIRS|TERMINFO(_DIRS)?|FONTCONFIG_\w+",
    r"(SSL_CERT|REQUESTS_CA|CURL_CA)_(FILE|DIR|BUNDLE)|GIT_(SSL_CAINFO|(AUTHOR|COMMITTER)_(NAME|EMAIL|DATE)|DEFAULT_HASH)|HTTPLIB2_CA_CERTS",
)
"""Patterns of the full names, in any case, of the variables that a command in the sandbox gets."""

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


@cache
def is_secret(name: str) -> bool:
    """Whether a variable of this name is taken for a secret."""
    return _one_of(SECRET_NAMES).fullmatch(name) is not None


@cache
def _is_known(name: str) -> bool:
    return _one_of(KNOWN_NAMES).fullmatch(name) is not None


_ADDRESS_WITH_USER = regex(r"://[^/\s]*@")


@cache
def _one_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


def sandboxed_environment(environment: Mapping[str, str], keep: Iterable[str] = ()) -> dict[str, str]:
    """The known variables of `environment` and those named in `keep`, set for plain output without colours.

    Values with an address that has a user or a password in it are left out.
    """
    kept = frozenset(keep)
    clean = {
        name: value
        for name, value in environment.items()
        if name in kept or (_is_known(name) and not _ADDRESS_WITH_USER.search(value))
    }
    return clean | _FOR_READING | _for_git({})


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
