"""The rules of ``secrets``: how names, places in URLs and shapes give a secret away, and what is put in its place.

First the vocabulary: words in names, prefixes of issuers, options of programs. A prefix is listed only where the rest
of the word is not random enough to tell by itself (``secret_marks.is_random``). Every pattern takes time linear in the
text: any user may write a command line. Imported when a text may hold a secret, since compiling the patterns takes as
long as importing a tenth of the program.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from gputop.model.secret_marks import GENERATED, MASK, is_random, may_have_its_shape, may_hold_one
from gputop.model.text_table import table_rows

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
HARMLESS_BEFORE = {
    word: frozenset(before.split())
    for word, before in table_rows("""
    key    image img text caption video audio label target input output feature sort group order partition primary
           foreign index data dataset batch json dict state column field row loss metric monitor prompt response
           answer question query reward best log eval score message messages sample mask map hot public cache
    token  pad eos bos unk cls sep mask start stop end special image video audio placeholder initializer trigger per
           last first next new begin max min num think eot decoder forced
    pass   two one single multi first second third num n forward backward per each k max min by bump
""")
}
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
    r"gl(?:pat|dt|rt|cbt)-[\w-]{8,}|(?:gh[pousr]_|dckr_pat_|GOCSPX-)[\w-]{16,}|xox[abeprs]-[\w-]{6,}|xapp-[\w-]{10,}|"
    r"hooks\.slack\.com/services/[\w/]+|discord(?:app)?\.com/api/webhooks/[\w/-]+|"
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{8,}|AIza[\w-]{20,}|ya29\.[\w-]{8,}|eyJ[\w-]{6,}(?:\.[\w-]*){0,4}|"
    r"SG\.[\w-]{8,}\.[\w-]{8,}|hv[bs]\.[\w-]{8,}|AGE-SECRET-KEY-1[A-Z0-9]{8,}|AT[AC]TT3x[\w=-]{16,}|"
    # Of one case: Databricks, DigitalOcean, Shopify, HubSpot, RunPod.
    r"(?:dapi|do[opr]_v1_|shp[a-z]{2}_|pat-[a-z]{2}\d-)[a-f0-9-]{24,}|rpa_[A-Za-z0-9]{24,}"
    r")"
)
"""Secrets that are known by their shape alone."""

PASSWORD_OPTIONS = {
    program: option
    for option, programs in table_rows("""
    -p  sshpass mysql mysqldump mysqladmin mariadb mariadb-dump twine mongo mongosh mongodump 7z 7za 7zr rar unrar
    -P  zip unzip sqlcmd
    -a  redis-cli keydb-cli
    -w  ldapsearch ldapadd ldapmodify ldapwhoami
""")
    for program in programs.split()
}
"""Programs whose short option takes a password, with or without a blank (``mysql -pX``)."""
PAIR_OPTIONS = {"curl": "-u", "lftp": "-u", "wget": "-u", "smbclient": "-U", "http": "-a", "https": "-a", "xh": "-a"}
"""Programs whose short option takes ``user:password`` (``user%password``)."""
LOGINS = frozenset(("docker", "podman", "nerdctl", "oras", "helm"))
"""Programs that take ``login -p PASSWORD``; without ``login`` it is a port."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_NAME = r"[A-Za-z_][\w.\-]{0,127}"
_NAMED = re.compile(rf"(?:--?|\+{{1,2}}|/)?({_NAME})(=|:|\+=)\s*(.*)", re.DOTALL)
_OPTION = re.compile(rf"[\[{{(,\"']*(?:--?|/)({_NAME})[\"',]*")
_ASSIGNED = re.compile(rf"(?<![\w.\-])({_NAME})(?:\\?[\"']\]?)?(?:\s{{0,4}}(?:=>|:=|==?|:)\s{{0,4}}|%3[Dd])")
_VALUE = re.compile(r"\\?\"(?:[^\"\\]|\\.)*\"?|\\?'(?:[^'\\]|\\.)*'?|[^\s&;\"'|<>()`]+")
_QUOTED = re.compile(r"([\"'])((?:(?!\1).)*)\1", re.DOTALL)
_QUOTE = re.compile(r"\\?[\"']")
_LONG_OPTION = re.compile(r"--[a-z][a-z0-9_.\-]*(?:=.*)?", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_][\w.]*[._]\w+|[A-Z]{4,}")
_LISTED = re.compile(rf"([\"'])--?({_NAME})\1(\s{{0,4}},\s{{0,4}})([\"'])[^\"']*\4")
_SIGNED = re.compile(r"(?<=[?&;])((?:X-(?:Amz|Goog)-)?(?:sig|signature|credential)=)[^&\s\"']+", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)([^\s/?#\"'<>:@]*)(:?)([^\s/?#\"'<>]{0,512})@")
_SLASHED_USER_INFO = re.compile(r"(?<=://)([^\s/?#\"'<>:@]*):(?!\d{1,5}[/?#])([^\s\"'<>@]{1,256})@(?=[\w\[])")
_PAIR_AT = re.compile(r"(?<![\w/:.+\-])([\w.+\-]{1,64}):([^\s:@/\"']{1,128})@(?=[\w\-]{1,64}\.\w|localhost\b)")
_SCHEME = re.compile(r"[Bb]earer|BEARER|[Bb]asic|BASIC")
_CREDENTIALS = re.compile(r"(?=[^\s\"']{8})(?=[^\s\"']*[A-Z0-9=])[^\s\"']+")
"""What follows a scheme: longer than a number, and no word of a sentence."""
_AFTER_SCHEME = re.compile(rf"\b({_SCHEME.pattern})(\s+){_CREDENTIALS.pattern}")
_PAIR = re.compile(r"([^:%\s]+[:%]).+", re.DOTALL)
_COMMA_PAIR = re.compile(r"([^:%,\s]+[:%,]).+", re.DOTALL)
"""As lftp takes it."""
_MAYBE = re.compile(r"key|token|auth|secret|cred|signature", re.IGNORECASE)
"""In a name that is harmless by its words (``--key-name``): a random value gives it away all the same."""
_UNBROKEN = re.compile(r"(?!.*[a-z]{8})[\w+\-]+")
"""What may be random behind such a name: no path, address, assignment or file, and no name with a word in it."""
_BARE = re.compile(r"(?:password|passwd|passphrase|secret|token|credentials?)$", re.IGNORECASE)
_PIECES = re.compile(r"(?:\\.|\"[^\"]*\"|'[^']*'|[^\s\"'\\])+|\s+|[\"'\\]", re.DOTALL)


_JOINED = ("apikey", "accesskey", "privatekey", "passphrase", "passcode")


@lru_cache(maxsize=512)
def names_a_secret(name: str) -> bool:
    """Whether the name of an option or a variable (``api_key``, ``clientSecret``, ``wandb.token``) says secret."""
    last = name.rsplit(".", 1)[-1]
    # Both as camelCase and as it stands: clientSecret and ToKeN.
    split = [
        [word.lower() for word in _WORDS.findall(last)],
        [word for word in re.split(r"[_\-]", last.lower()) if word],
    ]
    return any(map(_say_secret, split))


def _say_secret(words: list[str]) -> bool:
    for place, word in enumerate(words):
        rest = words[place + 1 :]
        if ALWAYS.search(word) or word + (rest[0] if rest else "") in _JOINED:
            if not any(after in HARMLESS_AFTER for after in rest):
                return True
        elif not all(TAIL.match(after) for after in rest):
            continue
        elif word in ("keys", "tokens"):
            if place and words[place - 1] in PLURAL_OF:
                return True
        elif LAST.match(word) and not _names_data(words[place - 1] if place else "", word):
            return True
    return False


def without_secrets(words: Sequence[str]) -> list[str]:
    """As ``secrets.masked_words``, for words that may hold a secret."""
    shown: list[str] = []
    hidden_next = False
    program = ""
    for place, word in enumerate(words):
        if hidden_next and not _is_next_option(word):
            value, hidden_next = _hidden(word)
            shown.append(value)
            continue
        following = words[place + 1] if place + 1 < len(words) else ""
        hidden_next = _announces(word, following, words[place - 1] if place else "")
        hidden = None if hidden_next else _of_tool(program, words, place)
        shown.append(_masked_word(word) if hidden is None else hidden)
        name = word.rsplit("/", 1)[-1]
        if name in PASSWORD_OPTIONS or name in PAIR_OPTIONS or name in LOGINS:
            program = name
    return shown


def text_without_secrets(text: str) -> str:
    """As ``secrets.masked_text``, for a text that may hold a secret."""
    text = _patterns(text)
    pieces = _PIECES.findall(text)
    places = [place for place, piece in enumerate(pieces) if not piece.isspace()]
    words = [pieces[place] for place in places]
    bare = [_unquoted(word) for word in words]
    shown = without_secrets(bare)
    for index, place in enumerate(places):
        if shown[index] != bare[index]:
            pieces[place] = shown[index]
        elif _announces_secret(words[max(0, index - 2) : index]) and _is_made_up(words[index]):
            pieces[place] = MASK
    return "".join(pieces)


def _announces_secret(before: Sequence[str]) -> bool:
    """Whether the words before say that a secret comes: ``token X``, ``the password is X``."""
    if len(before) > 1 and before[-1].lower() in ("is", "was", "to"):
        before = before[:-1]
    return bool(before) and _BARE.fullmatch(before[-1]) is not None


def _is_made_up(word: str) -> bool:
    """Whether a word in a sentence looks generated: letters mixed with digits or signs."""
    has_letter, has_digit = any(map(str.isalpha, word)), any(map(str.isdigit, word))
    return len(word) >= 6 and ((has_letter and has_digit) or (has_letter and any(sign in word for sign in "!@#$%^&*")))


def _patterns(text: str) -> str:
    """Mask what its own shape gives away, wherever words begin."""
    if may_have_its_shape(text):
        text = GENERATED.sub(_random, SHAPES.sub(MASK, text))
    if "," in text:
        text = _LISTED.sub(_listed, text)
    text = _assigned(text)
    if "://" in text:
        text = _SIGNED.sub(rf"\1{MASK}", text)
        text = _USER_INFO.sub(_user_info, text)
        text = _SLASHED_USER_INFO.sub(rf"\1:{MASK}@", text)
    if "@" in text:
        text = _PAIR_AT.sub(rf"\1:{MASK}@", text)
    return _AFTER_SCHEME.sub(rf"\1\2{MASK}", text)


def _random(match: re.Match[str]) -> str:
    return MASK if is_random(match[0]) else match[0]


def _assigned(text: str) -> str:
    """Every ``name = value`` and ``name: value`` in a text whose name says secret, quoted or not."""
    parts, done = [], 0
    for match in _ASSIGNED.finditer(text):
        if match.start() < done:
            continue
        value = _VALUE.match(text, match.end())
        bare = value[0].strip("\\\"'") if value else ""
        if (
            value is None
            or not _are_secret(match[1], bare)
            or not bare
            or _is_plain(bare)
            or bare.lower() in SCHEMES
            or _is_folder(match[1], bare)
        ):
            continue
        quote = _QUOTE.match(value[0])
        mark = "" if quote is None else quote[0]
        parts += [text[done : value.start()], mark, MASK, mark]
        done = value.end()
    return "".join([*parts, text[done:]]) if parts else text


def _is_plain(value: str) -> bool:
    """Whether a value is no secret under any name: a word for true or false, a number below a hundred."""
    return value.lower() in PLAIN or (len(value) <= 2 and value.isdigit())


def _is_folder(name: str, value: str) -> bool:
    return value.startswith("//") or (name.upper() in ("PWD", "OLDPWD") and value[0] in "/~.")


def _are_secret(name: str, value: str) -> bool:
    """Whether a value is secret by its name, or by a harmless name that sounds like it before a random value."""
    return names_a_secret(name) or (
        _MAYBE.search(name) is not None and _UNBROKEN.fullmatch(value) is not None and is_random(value)
    )


def _announces(word: str, following: str, before: str) -> bool:
    """Whether the next word is a secret: an option or a header's name without its value, ``set api-key X``."""
    option = _OPTION.fullmatch(word)
    if option is not None:
        return _are_secret(option[1], following)
    if before == "set" and names_a_secret(word):
        return True
    if _SCHEME.fullmatch(word) and _CREDENTIALS.fullmatch(following):
        return True
    if word.endswith((":", "=")):
        return names_a_secret(word[:-1].strip("\"'{([,"))
    if following in (":", "=", ":=", "=>"):
        return names_a_secret(word)
    # ``MODEL.API_KEY X``, as configurations are overridden, and ``setenv TOKEN X``; ``DATA.KEY image`` is no secret.
    return _VARIABLE.fullmatch(word) is not None and word.rsplit(".", 1)[-1].lower() != "key" and names_a_secret(word)


def _masked_word(word: str) -> str:
    """One argument: as a name with its value, as text of several words, or by what stands inside."""
    if not may_hold_one(word):
        return word
    named = _NAMED.fullmatch(word)
    value = "" if named is None else named[3].strip()
    if named is not None and _are_secret(named[1], value):
        if not value or _is_plain(value) or _is_folder(named[1], value):
            return word
        return word[: named.start(3)] + MASK
    if len(word.split(None, 1)) < 2:
        return _patterns(word)
    if len(_PIECES.findall(word)) > 1:
        return text_without_secrets(word)
    # One word with quoted parts, which are texts of their own and shorter than this one.
    return _patterns(_QUOTED.sub(lambda part: f"{part[1]}{text_without_secrets(part[2])}{part[1]}", word))


def _hidden(word: str) -> tuple[str, bool]:
    """What replaces the value of a secret option, and whether the next word belongs to it as well."""
    if word.strip("\"'").lower() in SCHEMES or word in (":", "=", ":=", "=>"):
        return word, True
    return (word if _is_plain(word) else MASK), False


def _is_next_option(word: str) -> bool:
    """Whether the word after an option is the next one, with two dashes or one letter: a password may begin with one
    dash."""
    return _LONG_OPTION.fullmatch(word) is not None or (len(word) == 2 and word[0] == "-" and word[1].isalpha())


def _names_data(before: str, word: str) -> bool:
    """Whether a word that may say secret names a part of the data: ``image_key``, ``padtoken``."""
    for kind, harmless in HARMLESS_BEFORE.items():
        if word.endswith(kind) and (word.removesuffix(kind) or before) in harmless:
            return True
    return False


def _listed(match: re.Match[str]) -> str:
    if not names_a_secret(match[2]):
        return match[0]
    return f"{match[0][: match.start(4) - match.start()]}{match[4]}{MASK}{match[4]}"


def _user_info(match: re.Match[str]) -> str:
    """``user:X@`` keeps the user. Without a colon all of it may be a token, unless it is a short name."""
    user, colon, _ = match.groups()
    if colon:
        return f"{user}:{MASK}@"
    return match[0] if len(user) <= 8 and user.isalpha() else f"{MASK}@"


def _of_tool(program: str, words: Sequence[str], place: int) -> str | None:
    """A word that is a password by the rules of its program; None for all others."""
    word, before = words[place], words[place - 1] if place else ""
    if program == "curl" and before == "-b" and "=" in word:
        return MASK
    if before == "login" and len(word) >= 16 and word.isalnum():
        return MASK
    if program in LOGINS:
        return MASK if before == "-p" and "login" in words else None
    option = PASSWORD_OPTIONS.get(program)
    if option is not None:
        if before == option:
            return MASK
        return f"{option}{MASK}" if word.startswith(option) and len(word) > len(option) else None
    option = PAIR_OPTIONS.get(program)
    if option is not None and (_takes_pair(before, option) or word.startswith(option)):
        pair = (_COMMA_PAIR if program == "lftp" else _PAIR).fullmatch(word)
        return f"{pair[1]}{MASK}" if pair else None
    return None


def _takes_pair(word: str, option: str) -> bool:
    """Whether an option wants ``user:password``: by itself, by its long name or as the last of several letters."""
    return word in ("--user", "--proxy-user") or (word[:1] == "-" and word[1:].isalpha() and word.endswith(option[1]))


def _unquoted(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'" else word
