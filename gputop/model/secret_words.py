"""The vocabulary of ``secrets``: words in names, prefixes of issuers, options of programs. No behaviour.

Prefixes are those that their issuers publish so that scanners of repositories find what was leaked.
"""

from __future__ import annotations

import re

ALWAYS = re.compile(
    r"passw|passphrase|passwd|pwd$|passin$|passout$|secret(?!ar)|credential|creds?$|authori[sz]ation|apikey|authtoken|"
    r"accesstoken|accesskey|privatekey|signingkey|encryptionkey|accountkey|masterkey|cookie$|bearer$|"
    r"(?:user|db|my|root|ssh|smtp|admin|ftp|mail|http|proxy|key|store|login)pass$"
)
"""Words that say secret wherever they stand in a name."""
LAST = re.compile(
    r"^(?:key|token|auth|pass|passcode|pin|otp|jwt|pat|dsn|pw|sas|[a-z]+token|(?:hf|aws|ssh|wandb|ngc|nv|license)key)$"
)
"""Words that say secret when they end a name."""
PLURAL_OF = frozenset((
    "api", "auth", "access", "secret", "private", "bearer", "refresh", "session", "hf", "github", "service",
))  # fmt: skip
"""Before ``keys`` and ``tokens`` they say secret; ``--max-tokens`` is a length."""
HARMLESS_BEFORE: dict[str, frozenset[str]] = {
    "key": frozenset((
        "image", "img", "text", "caption", "video", "audio", "label", "target", "input", "output", "feature", "sort",
        "group", "order", "partition", "primary", "foreign", "index", "data", "dataset", "batch", "json", "dict",
        "state", "column", "field", "row", "loss", "metric", "monitor", "prompt", "response", "answer", "question",
        "query", "reward", "best", "log", "eval", "score", "message",
        "messages", "sample", "mask", "map", "hot", "public", "cache",
    )),
    "token": frozenset((
        "pad", "eos", "bos", "unk", "cls", "sep", "mask", "start", "stop", "end", "special", "image", "video", "audio",
        "placeholder", "initializer", "trigger", "per", "last", "first", "next", "new", "begin", "max", "min", "num",
        "think", "eot", "decoder", "forced",
    )),
    "pass": frozenset((
        "two", "one", "single", "multi", "first", "second", "third", "num", "n", "forward", "backward", "per",
        "each", "k", "max", "min",
        "by", "bump",
    )),
}  # fmt: skip
"""After these words they name a part of the data: ``--image-key jpg``, ``--pad-token '<pad>'``."""
HARMLESS_AFTER = frozenset((
    "file", "files", "filename", "path", "paths", "dir", "folder", "name", "names", "type", "types", "mode", "method",
    "provider", "length", "len", "size", "sizes", "count", "num", "limit", "host", "port", "env", "var", "version",
    "format", "stdin", "prompt", "ttl", "timeout", "required", "enabled", "algorithm", "scope", "scopes", "server",
    "backend", "class", "manager", "store", "policy", "frames", "min", "max", "expiry",
))  # fmt: skip
"""After a word that says secret they make it something about the secret: ``--password-file``, ``--token-limit``."""
TAIL = re.compile(r"(?:\d+|prod|dev|test|staging|main|old|new|ro|rw|value|str|string|b64|base64|hex|pem|raw)$")
"""What may follow the word that says secret: ``HF_TOKEN_2``, ``API_KEY_PROD``."""
SCHEMES = frozenset(("bearer", "basic", "digest", "token", "negotiate", "apikey", "aws4-hmac-sha256", "bot"))
"""What stands before the secret in an Authorization header."""
PLAIN = frozenset(("true", "false", "none", "null", "yes", "no", "on", "off", "auto"))
"""Values that are no secret under any name: ``--use-auth-token True``."""

SHAPES = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[^-]|-(?!----END))*(?:-----END [A-Z ]*PRIVATE KEY-----)?|"
    r"(?<![A-Za-z0-9])(?:"
    r"hf_(?:[A-Za-z0-9]{16,}|(?=[A-Za-z]*\d|[a-z]+[A-Z]|[A-Z]+[a-z])[A-Za-z0-9]{6,})|"
    r"(?:sk|rk)[-_](?:(?:proj|live|test|ant|or|svcacct|admin)[-_][\w-]{6,}|[A-Za-z0-9]{20,}|"
    r"(?=[A-Za-z]{0,19}\d)[A-Za-z0-9]{8,})|"
    r"gh[pousr]_[A-Za-z0-9]{6,}|github_pat_\w{6,}|gl(?:pat|dt|rt|cbt)-[\w-]{8,}|"
    r"xox[abeprs]-[\w-]{6,}|xapp-[\w-]{10,}|hooks\.slack\.com/services/[\w/]+|discord(?:app)?\.com/api/webhooks/[\w/-]+|"
    r""
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{8,}|AIza[\w-]{20,}|ya29\.[\w-]{8,}|GOCSPX-[\w-]{8,}|"
    r"eyJ[\w-]{6,}(?:\.[\w-]*){0,4}|nvapi-[\w-]{8,}|gsk_[A-Za-z0-9]{16,}|r8_[A-Za-z0-9]{16,}|npm_[A-Za-z0-9]{16,}|"
    r"pypi-[\w-]{16,}|dckr_pat_[\w-]{8,}|do[opr]_v1_[a-f0-9]{16,}|SG\.[\w-]{8,}\.[\w-]{8,}|whsec_\w{8,}|hv[bs]\.[\w-]{8,}|"
    r"AGE-SECRET-KEY-1[A-Z0-9]{8,}|glsa_\w{16,}|lin_api_\w{16,}|xai-\w{20,}|shpat_\w{16,}"
    r")"
)
"""Secrets that are known by their shape alone."""

PASSWORD_OPTIONS = {
    **dict.fromkeys(("sshpass", "mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump", "twine"), "-p"),
    **dict.fromkeys(("mongo", "mongosh", "mongodump", "7z", "7za", "7zr", "rar", "unrar"), "-p"),
    **dict.fromkeys(("zip", "unzip", "sqlcmd"), "-P"),
    **dict.fromkeys(("redis-cli", "keydb-cli"), "-a"),
    **dict.fromkeys(("ldapsearch", "ldapadd", "ldapmodify", "ldapwhoami"), "-w"),
}
"""Programs whose short option takes a password, with or without a blank (``mysql -pX``)."""
PAIR_OPTIONS = {"curl": "-u", "lftp": "-u", "wget": "-u", "smbclient": "-U", "http": "-a", "https": "-a", "xh": "-a"}
"""Programs whose short option takes ``user:password`` (``user%password``)."""
LOGINS = frozenset(("docker", "podman", "nerdctl", "oras", "helm"))
"""Programs that take ``login -p PASSWORD``; without ``login`` it is a port."""
