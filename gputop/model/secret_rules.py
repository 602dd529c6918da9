"""The rules of ``secrets``: names, URLs, known prefixes, and randomness.

Every pattern takes time linear in the text: any user may write a command line.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from gputop.model.secret_marks import MASK

Strength = Literal["", "weak", "strong"]
"""Strength of a name as a sign of a secret.

After a weak name only a value that looks generated is masked.
"""

_STRONG = re.compile(
    r"passw|passphrase|passcode|passin$|passout$|pwd$|secret(?!ar)|credential|creds?$|authori[sz]ation|cookies?$|bearer$|"
    r"(?:api|access|private|secret|signing|encryption|account|master|auth|refresh|session|bearer|hub|hf|ssh|wandb|client)"
    r"(?:key|token)s?$|^(?:jwt|sas|dsn|otp)$|^(?:user|db|my|root|ssh|s?ftp|smtp|admin|mail|http|proxy|key|store|login)pass$"
)
"""Words that say secret, a word and its next one joined included: ``api key``, ``access_token``."""
_WEAK = re.compile(r"(?:key|token)$|^(?:auth|pass|pat|pw|pin|sig|signature)$")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_DATA = _set("""
    image img text caption video audio label target input output feature sort group order partition primary foreign
    index data dataset batch json dict state column field row loss metric monitor prompt response answer question query
    reward best log eval score message mask map hot public cache pad eos bos unk cls sep start stop end special first
    placeholder initializer trigger per last next new begin max min num value forward backward two one
""")
"""Words that make ``key`` and ``token`` a part of the data.

Examples: ``--image-key jpg``, ``--pad-token '<pad>'``.
"""
_ABOUT = _set("""
    file files filename path paths dir folder name names type types mode method provider length len size sizes count
    num limit host port env var version format stdin prompt ttl timeout required enabled algorithm scope scopes server
    backend class manager store policy frames min max expiry padding heads
""")
"""Words that make a name one about the secret.

Examples: ``--password-file``, ``--token-limit``.
"""
_SCHEMES = _set("bearer basic digest negotiate bot")
_PLAIN = _SCHEMES | _set("true false none null yes no on off auto token apikey")
"""Values that are no secret under any name, and the schemes before one in a header."""

_KNOWN = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[^-]|-(?!----END))*(?:-----END [A-Z ]*PRIVATE KEY-----)?|(?<![A-Za-z0-9])(?:"
    r"hf_(?:[A-Za-z0-9]{16,}|(?=[A-Za-z]*\d|[a-z]+[A-Z]|[A-Z]+[a-z])[A-Za-z0-9]{6,})|"
    r"(?:c?s|r)k[-_](?:(?:proj|live|test|ant|or|svcacct|admin)[-_][\w-]{6,}|(?=[A-Za-z]{0,19}\d)[A-Za-z0-9]{8,})|"
    r"hooks\.slack\.com/services/[\w/]+|discord(?:app)?\.com/api/webhooks/[\w/-]+|webhook\.office\.com/[\w@/-]+|"
    r"(?:gl(?:pat|dt|rt|cbt)|xox[abeprs]|xapp)-[\w-]{6,}|(?:gh[pousr]_|github_pat_|dckr_pat_|GOCSPX-|nvapi-)[\w-]{16,}|"
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{8,}|AIza[\w-]{20,}|ya29\.[\w-]{8,}|eyJ[\w-]{6,}(?:\.[\w-]*){0,4}|"
    r"bot\d{6,12}:[\w-]{30,}|(?:SG|hv[bs])\.[\w-]{8,}(?:\.[\w-]{8,})?|AGE-SECRET-KEY-1[A-Z0-9]{8,}|AT[AC]TT3x[\w=-]{16,}|"
    # Hex digits of one case behind these: Supabase, Pulumi, Databricks, DigitalOcean, Shopify, HubSpot, LangSmith.
    r"(?:sbp_|pul-|dapi|do[opr]_v1_|shp[a-z]{2}_|pat-[a-z]{2}\d-|lsv2_[a-z]{2}_|r8_|rpa_|NRAK-|"
    r"pat[A-Za-z0-9]{14}\.|[\w.]{1,64}\.atlasv1\.)(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{24,}|key-[a-f0-9]{24,})"
)
"""Secrets whose prefix is published, so that scanners find them."""
_RANDOM = re.compile(
    r"(?<![\w+=.\-])((?:[A-Za-z][A-Za-z0-9]{0,9}[-_.]){0,4})([A-Za-z0-9+~_-]{20,}(?:\.(?=[\w-]*[A-Z])[\w-]{6,})*)(?![\w+/\-]|\.\w|=[\w.])"
)
_BASE64 = re.compile(r"(?<![\w+/=.\-])[A-Za-z0-9+/]{40}(?![\w+/=.\-])")
_IN_URL = re.compile(r"(?<=[/:])[A-Za-z][A-Za-z0-9_-]{19,}(?![\w.-])")

_NAME = r"[A-Za-z_][\w.\-]{0,127}"
_OPTION = re.compile(rf"[\[{{(,\"']*--?({_NAME})[\"',]*")
_WHOLE = re.compile(rf"(?:--?|\+{{1,2}}|/)?({_NAME})(?:=|:|\+=)\s*(.+)", re.DOTALL)
_ASSIGNED = re.compile(
    rf"(?:(?<![\w.\-])|(?<=%22)|(?<=%26))({_NAME})(?:\\?[\"']\]?|%22)?(?:\s{{0,4}}(?:=>|:=|==?|:)\s{{0,4}}|%3[ADad]|(?<=\w)>)(?:%22)?"
)
_VALUE = re.compile(r"(\\?[\"'])((?:[^\"'\\]|\\[^\"'])+)|()\$?'?([^\s&;\"'|<>()`%]+)")
_ORDINARY = re.compile(
    r"[\d.,:eE+-]+[kKmMgGtT]?i?[bB]?|[a-z]+[_-](?:[a-z]+[_-])*\d{1,5}|<.*>|[./~$].*|.*/.*\.\w{1,5}",
    re.DOTALL,
)
"""Numbers with a unit, names with a number, placeholders, and paths."""
_NEXT = re.compile(r"--[a-z][a-z0-9_.\-]*(?:=.*)?|-[A-Za-z]", re.DOTALL)
_USER_INFO = re.compile(
    r"(?<=://)([^\s/?#\"'<>:@]*)(:(?!\d{1,5}[/?#])[^\s\"'<>@]{0,256}(?:@[^\s/?#\"'<>@]{1,256})*)?@(?=[\w\[{*$])"
)
_PAIR_AT = re.compile(
    r"(?<![\w/:.+\-])([\w.+\-]{1,64}):([^\s:@/\"']{3,128})@(?=[\w\-]{1,64}\.\w|localhost\b)"
)
_SCHEME = re.compile(
    r"\b([Bb]earer|BEARER|[Bb]asic|BASIC)([\s,]+)(?=[^\s\"']*[A-Z0-9=])[^\s\"']{8,}"
)
_SHORT = re.compile(r"-[pPwakU](?=(.*))", re.DOTALL)
_PAIR = re.compile(r"(-[uUa]|--user|--proxy-user)?([^:%\s/]{1,64}[:%])(?!//)(.+)", re.DOTALL)
_BEFORE_ONE = ("p", "P", "w", "a", "k", "login", "obscure", "token", "echo")
"""Short options and words before a password, which is known by its look alone."""
_TAKES_PAIR = ("-u", "-U", "-a", "--user", "--proxy-user", "--basic-auth")
_PIECES = re.compile(r"(?:\\.|\"[^\"]*\"|'[^']*'|[^\s\"'\\])+|\s+|[\"'\\]", re.DOTALL)
_QUOTED = re.compile(r"([\"'])((?:(?!\1).)*)\1", re.DOTALL)
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_TAIL = re.compile(
    r"(?:\d+|prod|dev|test|staging|main|old|new|ro|rw|value|str|string|id|b64|base64|hex|pem|raw|base)$"
)


@lru_cache(maxsize=512)
def strength(name: str) -> Strength:
    """Return how surely a name (``api_key``, ``clientSecret``) says secret."""
    last = name.rsplit(".", 1)[-1]
    # Both split at capitals and unchanged: clientSecret and ToKeN.
    splits = (
        [w.lower() for w in _CAMEL.findall(last)],
        [w for w in re.split(r"[_\-]", last.lower()) if w],
    )
    found = {_of_words(words) for words in splits}
    return "strong" if "strong" in found else "weak" if "weak" in found else ""


def _of_words(words: list[str]) -> Strength:
    for place, word in enumerate(words):
        before, rest = (words[place - 1] if place else ""), words[place + 1 :]
        if any(after in _ABOUT for after in rest):
            continue
        if _STRONG.search(word) or (
            _STRONG.search(before + word) and re.match("(?:key|token)s?$|phrase$", word)
        ):
            return "strong"
        is_of_data = {before, word.removesuffix("key").removesuffix("token")} & _DATA
        if _WEAK.search(word) and all(map(_TAIL.match, rest)) and not is_of_data:
            return "weak"
    return ""


def is_random(text: str, kinds: int = 3, changing: float = 0.44, run: int = 7) -> bool:
    """Return whether a word looks random.

    Its longest part has several kinds of characters that change often: of random letters and digits 62 % of neighbours
    differ in kind (capital, small, digit), and ``run`` small letters in a row are rare. Names of models and checkpoints
    are made of words, and hashes and UUIDs have two kinds.
    """
    longest = max(re.split(r"[^A-Za-z0-9]", text), key=len)
    found = ["0" if c.isdigit() else "A" if c.isupper() else "a" for c in longest]
    changes = sum(a != b for a, b in pairwise(found))
    has_word = re.search(f"[a-z]{{{run}}}", longest) is not None
    return (
        "A" in found
        and len(set(found)) >= kinds
        and changes >= changing * (len(found) - 1)
        and not has_word
    )


def _is_generated(value: str) -> bool:
    """Return whether a value looks generated.

    Generated values are letters with digits, capitals or special characters.
    """
    bare = value.strip("\"'")
    if len(bare) < 6 or _ORDINARY.fullmatch(bare):
        return False
    return bool(re.search(r"[A-Za-z]", bare) and (re.search(r"\d|[a-z][A-Z]|[!@#$%^&*]", bare)))


def _is_secret(name: str, value: str) -> bool:
    """Return whether a value is a secret by its name."""
    bare = value.strip("\\\"'")
    said = strength(name)
    if not bare or bare.lower() in _PLAIN or re.fullmatch(r"\d{1,2}|\$\{?\w+\}?|//.*|\*+", bare):
        return False
    if name.upper() in ("PWD", "OLDPWD") and bare[0] in "/~.":
        return False
    return said == "strong" or (said == "weak" and _is_generated(bare))


def without_secrets(words: Sequence[str]) -> list[str]:
    """Mask the secrets among a program's arguments.

    Words without a secret stay unchanged.
    """
    plain = [_plain(word) for word in words]
    shown: list[str] = []
    name, is_more = "", False
    for word in plain:
        if name and not _NEXT.fullmatch(word):
            if word.strip("\"'").lower() in _SCHEMES or word in (":", "=", ":=", "=>"):
                shown.append(word)
                continue
            # A strong option may take several values.
            if (_is_random_word(word) if is_more else _is_secret(name, word)) or _is_short_secret(
                name, word
            ):
                shown.append(MASK)
                is_more = True
                continue
        shown.append(_masked_word(word, shown[-1] if shown else ""))
        name, is_more = _announced(word), False
    return [
        word if new == same else new for word, same, new in zip(words, plain, shown, strict=True)
    ]


def _plain(text: str) -> str:
    """Return a text without full-width signs and invisible characters.

    They hide a name from the rules, not from the program.
    """
    normal = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return "".join(c for c in normal if c.isascii() or unicodedata.category(c) != "Cf")


def _announced(word: str) -> str:
    """Return the name that makes the next word its value.

    Empty for most words.
    """
    if option := _OPTION.fullmatch(word):
        return option[1]
    bare = word.lstrip("\"'{([,-/ ").rstrip("\"':= ,")
    if bare.lower() in _SCHEMES:
        return "auth"
    is_name = (
        word[-1:] in (":", "=")
        or bare.isupper()
        or strength(bare) == "strong"
        or re.search(r"\w[._]\w", bare)
    )
    if is_name and re.fullmatch(_NAME, bare):
        # In a sentence the word after "password" is masked only if it looks like a secret.
        return "auth" if bare.isalpha() and bare.islower() and word[-1:].isalpha() else bare
    return bare if bare in _BEFORE_ONE else ""


def _is_short_secret(name: str, word: str) -> bool:
    """Return whether the word after ``-p`` looks like a password.

    Applies to similar options too.
    """
    is_key = name == "login" and re.fullmatch("[0-9A-Za-z]{32,}", word) is not None
    return is_key or (name in _BEFORE_ONE and _is_random_word(word, 7, 2))


def _is_random_word(word: str, least: int = 16, kinds: int = 3) -> bool:
    part = max(re.split(r"[+~_-]", word), key=len)
    return len(part) >= least and part.isascii() and part.isalnum() and is_random(word, kinds)


def text_without_secrets(text: str) -> str:
    """Mask the secrets in a text, word by word."""
    pieces = _PIECES.findall(_masked_inside(text))
    places = [place for place, piece in enumerate(pieces) if not piece.isspace()]
    for place, shown in zip(
        places, without_secrets([_unquoted(pieces[place]) for place in places]), strict=True
    ):
        if shown != _unquoted(pieces[place]):
            pieces[place] = shown
    return "".join(pieces)


def _masked_word(word: str, before: str) -> str:
    """Mask the secrets inside one argument."""
    whole = _WHOLE.fullmatch(word)
    if whole is not None and _is_secret(whole[1], whole[2]):
        return word[: whole.start(2)] + MASK
    short = _SHORT.match(word)
    if short is not None and _is_random_word(short[1].strip("\"'"), 7, 2):
        return f"{word[:2]}{MASK}"
    pair = _PAIR.fullmatch(word)
    if (
        pair is not None
        and (pair[1] or (before in _TAKES_PAIR and word[0] != "-"))
        and _is_generated(pair[3])
    ):
        return f"{word[: pair.start(3)]}{MASK}"
    if len(word.split(None, 1)) < 2:
        return _masked_inside(word)
    if len(_PIECES.findall(word)) > 1:
        return text_without_secrets(word)
    # One word with quoted parts, which are texts of their own and shorter than this one.
    return _masked_inside(
        _QUOTED.sub(lambda part: f"{part[1]}{text_without_secrets(part[2])}{part[1]}", word)
    )


def _masked_inside(text: str) -> str:
    """Mask secrets in a text by name, URL or shape."""
    text = _KNOWN.sub(MASK, text)
    text = _BASE64.sub(
        lambda m: MASK if is_random(re.sub("[+/]", "", m[0]), changing=0.33) else m[0], text
    )
    text = _RANDOM.sub(_random, text)
    text = _assigned(text)
    if "://" in text:
        text = _USER_INFO.sub(_user_info, text)
        if "http" in text:
            text = _IN_URL.sub(lambda m: MASK if is_random(m[0]) else m[0], text)
    text = _PAIR_AT.sub(rf"\1:{MASK}@", text)
    return _SCHEME.sub(rf"\1\2{MASK}", text)


def _random(match: re.Match[str]) -> str:
    """Mask a long run of random characters.

    The minimum is 20 characters behind a prefix, or 32 without one.
    """
    prefix, rest = match.groups()
    longest = max(map(len, re.split(r"[^A-Za-z0-9]", rest)))
    is_long = len(rest) >= (20 if prefix else 32) and longest >= 16
    return (
        MASK if is_long and is_random(rest, run=9 if prefix or len(rest) >= 40 else 7) else match[0]
    )


def _assigned(text: str) -> str:
    """Mask the values of names that mark secrets.

    Covers ``name=value`` and ``name: value``, quoted or not.
    """
    parts, done = [], 0
    for match in _ASSIGNED.finditer(text):
        if (
            match.start() >= done
            and strength(match[1])
            and (value := _VALUE.match(text, match.end()))
        ):
            group = 2 if value[2] else 4
            if _is_secret(match[1], value[group]):
                parts += [text[done : value.start(group)], MASK]
                done = value.end(group)
    return "".join([*parts, text[done:]])


def _user_info(match: re.Match[str]) -> str:
    """Mask the password of ``user:X@``, or a token before ``@``.

    A short name without a colon stays.
    """
    user, password = match.groups()
    if password is not None:
        return f"{user}:{MASK}@"
    return match[0] if len(user) <= 8 and user.isalpha() else f"{MASK}@"


def _unquoted(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'" else word
