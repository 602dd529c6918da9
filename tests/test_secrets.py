"""What looks like a secret is masked wherever it stands; ordinary arguments stay readable."""

from __future__ import annotations

import time

import pytest

from gputop.model.secret_marks import MASK
from gputop.model.secret_rules import names_a_secret, text_without_secrets
from gputop.model.secrets import masked_text, masked_words
from gputop.sources.processes.facts import FactsReader, command_text, executable_name

S = "Zq7xW9vK2mPl"
"""The planted secret; nothing about it but its place gives it away."""
HF = "hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh"
COMMANDS: list[list[str]] = [
    ["python", "t.py", "--token", S],
    ["python", "t.py", "--token=" + S],
    ["HF_TOKEN=" + S, "python"],
    ["env", "HF_TOKEN=" + S, "python"],
    ["python", "t.py", "--api-key", S],
    ["python", "t.py", "--api_key", S],
    ["python", "--apikey=" + S],
    ["x", "--openai-api-key", S],
    ["x", "--password", "my " + S + " phrase"],
    ["x", "--password=a,b;c&" + S],
    ["x", "-password", S],
    ["x", "--db.password=" + S],
    ["x", "+wandb.api_key=" + S],
    ["x", "++logger.token=" + S],
    ["x", "trainer.logger.api_key=" + S],
    ["java", "-Dspring.datasource.password=" + S],
    ["java", "-Djavax.net.ssl.keyStorePassword=" + S],
    ["curl", "-H", "Authorization: Bearer " + S],
    ["curl", "-HAuthorization: Bearer " + S],
    ["curl", "--header=X-Api-Key: " + S],
    ["curl", "-H", "X-Auth-Token:" + S],
    ["curl", "-u", "me:" + S, "https://x"],
    ["curl", "--user", "me:" + S],
    ["curl", "-ume:" + S],
    ["wget", "https://me:" + S + "@host/x"],
    ["git", "clone", "https://" + S + "@github.com/x"],
    ["git", "clone", "https://oauth2:" + S + "@gitlab.com/x"],
    ["x", "postgresql://u:p" + S + "@db:5432/n"],
    ["x", "postgres://u:p@" + S + "@db/n"],
    ["x", "redis://:" + S + "@h:6379/0"],
    ["x", "redis://:a/" + S + "@h:6379/0"],
    ["x", "https://h/x?token=" + S + "&y=1"],
    ["x", "https://h/x?y=1&api_key=" + S],
    ["x", "https://acc.blob.core.windows.net/c?sv=1&sig=" + S],
    ["x", "https://s3/x?X-Amz-Credential=" + S + "&X-Amz-Signature=" + S + "&X-Amz-Security-Token=" + S],
    ["x", "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=" + S + ";EndpointSuffix=core"],
    ["x", "--config", '{"api_key": "' + S + '", "x": 1}'],
    ["x", '{"api_key":"' + S + '"}'],
    ["x", "{'token': '" + S + "'}"],
    ["x", '{\\"token\\": \\"' + S + '\\"}'],
    ["x", "--args", '["--token","' + S + '"]'],
    ["x", "--args", '["--token", "' + S + '"]'],
    ["sh", "-c", "export TOKEN=" + S + "; python x"],
    ["sh", "-c", "python t.py --token '" + S + " abc " + S + "'"],
    ["sh", "-c", "curl -H 'Authorization: Bearer " + S + "' https://x"],
    ["sh", "-c", 'PASSWORD="' + S + '" python t.py'],
    ["bash", "-lc", "mysql -uroot -p" + S + " db"],
    ["python", "-c", "import os; login(token='" + S + "')"],
    ["python", "-c", 'login(token = "' + S + '")'],
    ["python", "-c", 'os.environ["HF_TOKEN"]="' + S + '"'],
    ["python", "-c", "os.environ['WANDB_API_KEY'] = '" + S + "'"],
    ["mysql", "-u", "root", "-p" + S],
    ["sshpass", "-p", S, "ssh", "h"],
    ["redis-cli", "-a", S],
    ["docker", "login", "-u", "x", "-p", S],
    ["smbclient", "-U", "u%" + S],
    ["wandb", "login", "0123456789abcdef0123456789abcdef01234567" + S],
    ["x", HF],
    ["x", "--model", HF],
    ["x", "--x=" + HF],
    ["x", "ghp_" + S * 3],
    ["x", "AKIAIOSFODNN7EXAMPLE"],
    ["x", "sk-proj-" + S],
    ["x", "sk-" + S * 3],
    ["x", "eyJhbGciOi." + S + "." + S],
    ["x", "github_pat_" + S],
    ["x", "xoxb-12-" + S],
    ["x", "nvapi-" + S],
    ["x", "glpat-" + S * 2],
    [HF, "x"],
    ["/opt/" + HF + "/bin/x"],
    ["python train.py --token " + S],
    ["python train.py --password=" + S + " x"],
    ["https://u:" + S + "@h/x"],
    ["TOKEN=" + S],
    ["x", "--token", HF[:15]],
    ["x", "--client-secret", S],
    ["x", "--clientSecret", S],
    ["x", "--secret", S],
    ["x", "--credential", S],
    ["x", "--credentials", S],
    ["x", "--authorization", S],
    ["x", "--auth", S],
    ["x", "--authorization", "Bearer", S],
    ["x", "Authorization:", "Bearer", S],
    ["x", "PASSWORD:" + S],
    ["x", "password", ":", S],
    ["x", "--password", "-" + S],
    ["x", "--key", S],
    ["x", "--KEY", S],
    ["x", "--Token", S],
    ["x", "-token", S],
    ["x", "/p:password=" + S],
    ["x", "--key:" + S],
    ["x", "-e", "DB_PASSWORD=" + S],
    ["docker", "run", "-eAPI_KEY=" + S],
    ["x", "--env", "A=1,PASSWORD=" + S + ",B=2"],
    ["x", "--set", "db.password=" + S],
    ["x", "--set", "global.secretKey=" + S],
    ["x", "API_KEY_PROD=" + S],
    ["x", "TOKEN2=" + S],
    ["x", "HF_TOKEN_RO=" + S],
    ["x", "SECRET_KEY_BASE=" + S],
    ["x", "MYSQL_PWD=" + S],
    ["x", "PGPASSWORD=" + S],
    ["x", "--hf-token", S],
    ["x", "--hftoken", S],
    ["x", "--wandb_key", S],
    ["x", "--auth-tokens", S],
    ["x", "--api-keys", S + "," + S],
    ["x", "--ssl-key-password", S],
    ["x", "--passphrase", S],
    ["x", "--passwd", S],
    ["x", "--jwt", S],
    ["openssl", "-passin", "pass:" + S],
    ["x", "-----BEGIN RSA PRIVATE KEY-----\n" + S + "\n-----END RSA PRIVATE KEY-----"],
    ["x", "token%3D" + S],
    ["x", "?access_token=" + S],
    ["x", "Cookie: a=" + S + "; b=" + S],
    ["x", "--cookie", S],
    ["x", "--header", "Cookie: a=1; b=" + S],
    ["x", "--password", "" + S, "--token", S],
    ["ssh", "h", "python", "t.py", "--token", S],
    ["x", "https://hooks.slack.com/services/T0/B0/" + S],
    ["x", "--basic-auth", "u:" + S],
    ["x", "Proxy-Authorization: Basic " + S],
    ["x", "--token=\n" + S],
    ["x", "--token\u00a0" + S],
    ["x", "--secret_id", S],
    ["x", "--aws-secret-access-key", S],
    ["x", "--aws_access_key", S],
    ["x", "accessToken=" + S],
    ["x", "--refreshToken", S],
    ["x", "--x-token", S],
    ["x", "--bearer", S],
    ["x", "machine h login me password " + S],
    ["x", "$(cat <<< token=" + S + ")"],
    ["x", "`TOKEN=" + S + " x`"],
    ["x", "a=1 b=2 token=" + S],
    ["x", "\ttoken:\t" + S],
    ["ray::Train(token=" + S + ")"],
    ["x", "--header", "Authorization: Digest username=a, response=" + S],
    ["x", 'TOKEN=\\"' + S + '\\"'],
    ["x", "--password", MASK + S],
    ["zip", "-P", S],
    ["7z", "-p" + S],
    ["ldapsearch", "-w", S],
    ["http", "-a", "u:" + S],
]

ORDINARY = """
python train.py --tokenizer bert --key-frames 3 --max-tokens 512 --num-keypoints 17
python -m vllm.entrypoints.openai.api_server --model llama --max-num-batched-tokens 8192 --tokenizer-mode auto
--max-logprobs 3
python train.py --num-key-value-heads 8 --keypoint-dim 3 --pad-token-id 0 --eos_token_id=2 --image-key jpg
--text_key txt --pad-token <pad>
python train.py --tokens 4096 --num_tokens=100 --tokens-per-batch 100 --token-type-ids --keys image,label
--dataset.keys a b --monkey 3
torchrun --nproc_per_node=8 --rdzv-endpoint=host:29500 train.py model.tokenizer=bert data.token_drop=0.1
trainer.max_tokens=100
python -m torch/_inductor/compile_worker/__main__.py --workers=8
python train.py --password-file /run/x --token-file=/t --key-file k.pem --api-key-file f --author me --authors x
--passes 3 --num-pass 3 --two-pass
git clone git@github.com:a/b ssh://git@host/x http://host:80/a@b https://user@host/x s3://bucket/a@b
http://localhost:9400/metrics
docker run -p 8080:80 --gpus all nvidia/cuda:12.4 python -p 3 tcp://10.0.0.1:29500
python train.py hf_transfer hf_checkpoint_convert sk-learn sk-learn-contrib-package --secretary x
--use-auth-token True --keyboard --passive --compass n
/usr/bin/python3 -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)
--multiprocessing-fork
python train.py --monitor-key val_loss --sort-key len --cookiecutter x --basic 3 --signature serving_default
--pin-memory --pinned 1 --path /a --pattern x
ray::IDLE ray::TrainWorker.step() VLLM::EngineCore [kworker/0:1] pt_data_worker curl -u me https://x --patience
3 --pin_memory=True
PWD=/home/x python --lr 1e-3 --seed=0 --keep-last 3 --tokenized-dir d --detokenize --token-budget 5 --keyframes
5 --key_frames=3 --hotkey a
python train.py --public-key k --cache-key x --bypass 3 --attention-key-dim 64 --key-dim 64 --qk-norm
--value-dim 64
""".strip().splitlines()


def _leaks(text: str) -> bool:
    return any(part in text for part in (S, "hf_Ab", "EXAMPLE"))


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words)[:70])
def test_no_secret_is_left_in_a_command_line(words: list[str]) -> None:
    masked = masked_words(words)
    assert not _leaks(" ".join(masked))
    assert MASK in " ".join(masked)
    assert masked_words(masked) == masked


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words)[:70])
def test_no_secret_is_left_in_facts_made_of_what_the_kernel_gives(words: list[str]) -> None:
    raw = "\0".join(words).encode() + b"\0"
    assert not _leaks(command_text(raw, b"python"))
    assert not _leaks(executable_name(raw, b"python"))
    title = " ".join(words).encode() if len(words) == 1 else b"x"
    assert not _leaks(command_text(b"", title[:15]))


HAS_BLANKS = [
    words for words in COMMANDS if any(" " in word and not word.startswith(("python", "-----")) for word in words)
]


@pytest.mark.parametrize(
    "words", [words for words in COMMANDS if words not in HAS_BLANKS], ids=lambda words: " ".join(words)[:70]
)
def test_a_command_line_that_has_become_one_text_is_masked_too(words: list[str]) -> None:
    masked = masked_text(" ".join(words))
    assert not _leaks(masked)
    assert masked_text(masked) == masked


@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_arguments_stay_readable(line: str) -> None:
    assert " ".join(masked_words(line.split())) == line
    assert masked_text(line) == line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("python t.py --api-key abc --lr 1", f"python t.py --api-key {MASK} --lr 1"),
        ("HF_TOKEN=abc python t.py", f"HF_TOKEN={MASK} python t.py"),
        ("curl -H 'Authorization: Bearer abc' https://x", f"curl -H Authorization: {MASK} https://x"),
        ("git clone https://me:abc@host/x.git", f"git clone https://me:{MASK}@host/x.git"),
        ("restarted with token 5f3c9a1b2d", f"restarted with token {MASK}"),
        ("epoch 3, password=hunter2", f"epoch 3, password={MASK}"),
        ("token budget 512 reached", "token budget 512 reached"),
        ("a password reset is due", "a password reset is due"),
    ],
)
def test_what_stands_around_a_secret_stays(text: str, shown: str) -> None:
    assert masked_text(text) == shown


@pytest.mark.parametrize("name", ["api_key", "HF_TOKEN", "clientSecret", "wandb.api_key", "PGPASSWORD", "X-Api-Key"])
def test_names_that_say_secret(name: str) -> None:
    assert names_a_secret(name)


@pytest.mark.parametrize(
    "name", ["tokenizer", "max_tokens", "key_frames", "num_keypoints", "password_file", "model.keys"]
)
def test_names_that_only_sound_like_it(name: str) -> None:
    assert not names_a_secret(name)


HOSTILE = [
    "a" * 4096, "a=" * 2048, "://a:b/" * 585, "://a:" * 820, "\"'" * 2048, "token " * 682, "--token " * 512,
    "eyJ" * 1365, "key  =  " * 512, "sk-" * 1365, "-----BEGIN PRIVATE KEY-----" * 150, "hf_a" * 1024, "\\" * 4096,
    "?sig=" * 819, "://" + "a" * 2000 + "@" * 2000, "token=\"" * 585, "[\"'" * 1365, "Basic " * 682,
    "key: x " * 585,
]  # fmt: skip


def test_a_hostile_command_line_takes_no_time() -> None:
    begin = time.process_time()
    for text in HOSTILE:
        masked_text(text)
        masked_words([text, *text.split()])
    assert time.process_time() - begin < 4.0


def test_a_secret_that_the_end_of_a_long_command_line_would_cut_is_masked_first() -> None:
    raw = b"python\0" + b"x" * 4080 + b"\0ghp_" + S.encode() * 3 + b"\0"
    text = command_text(raw, b"python")
    assert len(text) == 4096
    assert "ghp" not in text


def test_the_job_key_tells_jobs_apart_and_nothing_else() -> None:
    one, other = FactsReader("/proc", "/sys"), FactsReader("/proc", "/sys")
    keys = [
        one._job_key("ml", b"python\0a.py"),
        one._job_key("ml", b"python\0b.py"),
        one._job_key("ops", b"python\0a.py"),
    ]
    assert len(set(keys)) == 3
    assert one._job_key("ml", b"python\0a.py") == keys[0] != other._job_key("ml", b"python\0a.py")
    assert one._job_key("ml", b"") is None


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words)[:70])
def test_the_marks_that_are_looked_for_first_miss_nothing(words: list[str]) -> None:
    text = " ".join(words)
    assert masked_text(text) == text_without_secrets(text)
