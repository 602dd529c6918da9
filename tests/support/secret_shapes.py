"""Secrets of many issuers and places, with random values, for the tests of masking."""

from __future__ import annotations

import random
import re
from string import ascii_letters, digits

ALPHABETS = {"M": ascii_letters + digits, "H": "0123456789abcdef", "U": f"{ascii_letters}{digits}-_", "D": digits}
_LINES = """
telegram_url      curl https://api.telegram.org/bot{D9}:{U35}/sendMessage
telegram          x {D9}:{U35}
discord           x MTA{M21}.G{M5}.{U38}
langsmith         x lsv2_pt_{H32}_{H10}
terraform         x {M14}.atlasv1.{U60}
mailgun           x key-{H32}
airtable          x pat{M14}.{H64}
azure             az login -p {M3}8Q~{M34}
azure_bare        x {M3}8Q~{M34}
azure_long        x {M90}
supabase          x sbp_{H40}
doppler           x dp.st.prd.{M40}
pulumi            x pul-{H40}
buildkite         x bkua_{M40}
modal             x ak-{M22}
voyage            x pa-{M43}
mistral           x {M32}
cohere            x {M40}
deepseek          x sk-{H32}
slack             curl https://hooks.slack.com/services/T0{M8}/B0{M8}/{M24}
teams             curl https://x.webhook.office.com/webhookb2/{H8}@{H8}/IncomingWebhook/{H32}/{H8}
npm               x npm_{M36}
figma             x figd_{U40}
groq              x gsk_{M52}
anthropic         x sk-ant-api03-{U93}
sendgrid          x SG.{U22}.{U43}
vault             x hvs.{U90}
jwt               x eyJ{M30}.eyJ{M40}.{U43}
together          x TOGETHER_API_KEY={H64}
wandb             wandb login {H40}
kaggle            x KAGGLE_KEY={H32}
pypi              twine upload -p pypi-AgEI{M60}
mysql             mysql -uroot -p{M10}
sshpass           sshpass -p {M10} ssh h
redis             redis-cli -a {M16}
zip               zip -P {M9} a.zip
mysql_quoted      bash|-c|mysql -u root -p'{M10}' -e 'select 1'
keytool           keytool -storepass {M9}
cerebras          x csk-{H48}
telegram          curl https://api.telegram.org/bot123456789:{U35}/getMe
ldap              ldapsearch -D cn=a -w {M10}
openssl_k         openssl enc -k {M12}
openssl           openssl rsa -passin pass:{M7}
rclone            rclone obscure {M12}
sudo              bash|-c|echo {M9} \\| sudo -S reboot
docker            docker login -u me -p {M20}
curl              curl -u me:{M12} https://h
several           vllm serve m --api-key {M22} {M22}
call              python|-c|login('{M35}')
header            curl|-H|Sec-WebSocket-Protocol: bearer, {U35}
percent           x %7B%22password%22%3A%22{M20}%22%7D
percent_url       curl https://h/x?q=%7B%22api_key%22%3A%22{M20}%22%7D
zero_width        x --pass\u200bword={M20}
zero_width_next   x --pass\u200bword {M20}
full_width        x --password\uff1d{M20}
xml               x <password>{M20}</password>
attribute         x|<user password="{M9}"/>
json              x|--config|{{"password": "{M10}"}}
nested            x|--config|{{"api": {{"key": "{M20}"}}}}
yaml              x|token: {M20}
query             curl https://h/?key={M39}
sas               azcopy https://a.blob.core.windows.net/c?sv=1&sig={M43}%3D
mongodb           x mongodb+srv://u:{M24}@c.mongodb.net/db
sentry            x https://{H32}@o1.ingest.sentry.io/2
ftp               wget ftp://u:{M8}@h/x
conninfo          psql|host=h user=u password={M10}
netrc             x|machine h login u password {M9}
export            bash|-c|export WANDB_API_KEY="{M20}" && python t.py
jupyter           jupyter-lab --NotebookApp.token={M20}
helm              helm --set auth.password={M9}
"""
_ROWS = dict(line.split(None, 1) for line in _LINES.strip().splitlines())
SHAPES = tuple(_ROWS)
"""Their names."""


def shape(name: str, draw: random.Random) -> tuple[list[str], list[str]]:
    """The words of a command line, and the random parts of its secret that give it away."""
    parts: list[str] = []

    def filled(match: re.Match[str]) -> str:
        text = "".join(draw.choices(ALPHABETS[match[1]], k=int(match[2])))
        if match[1] != "D" and int(match[2]) >= 7:
            parts.append(text)
        return text

    row = _ROWS[name]
    line = re.sub(r"\{([MHUD])(\d+)\}", filled, row).replace("{{", "{").replace("}}", "}")
    words = re.split(r"(?<!\\)\|", line) if "|" in row else line.split(" ")
    return [word.replace("\\|", "|") for word in words], [max(parts, key=len)]
