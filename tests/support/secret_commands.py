"""Command lines with secrets in them, and ordinary ones that only sound like it, for the tests of masking.

As JSON lists of arguments; ``{S}`` stands for a secret that nothing but its place gives away, ``{HF}`` for
a token that is known by its shape.
"""

from __future__ import annotations

import json

S = "Zq7xW9vK2mPl"
HF = "hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh"
_LINES = r"""
["python", "t.py", "--token", "{S}"], ["python", "t.py", "--token={S}"], ["HF_TOKEN={S}", "python"],
["env", "HF_TOKEN={S}", "python"], ["python", "t.py", "--api-key", "{S}"], ["python", "t.py", "--api_key", "{S}"],
["python", "--apikey={S}"], ["x", "--openai-api-key", "{S}"], ["x", "--password", "my {S} phrase"],
["x", "--password=a,b;c&{S}"], ["x", "-password", "{S}"], ["x", "--db.password={S}"], ["x", "+wandb.api_key={S}"],
["x", "++logger.token={S}"], ["x", "trainer.logger.api_key={S}"], ["java", "-Dspring.datasource.password={S}"],
["java", "-Djavax.net.ssl.keyStorePassword={S}"], ["curl", "-H", "Authorization: Bearer {S}"],
["curl", "-HAuthorization: Bearer {S}"], ["tool", "--header", "Basic {S}"], ["tool", "--header", "Bearer {S}"],
 ["curl", "--header=X-Api-Key: {S}"], ["curl", "-H", "X-Auth-Token:{S}"],
["curl", "-u", "me:{S}", "https://x"], ["curl", "--user", "me:{S}"], ["curl", "-ume:{S}"],
["wget", "https://me:{S}@host/x"], ["git", "clone", "https://{S}@github.com/x"],
["git", "clone", "https://oauth2:{S}@gitlab.com/x"], ["x", "postgresql://u:p{S}@db:5432/n"],
["x", "postgres://u:p@{S}@db/n"], ["x", "redis://:{S}@h:6379/0"], ["x", "redis://:a/{S}@h:6379/0"],
["x", "https://h/x?token={S}&y=1"], ["x", "https://h/x?y=1&api_key={S}"],
["x", "https://acc.blob.core.windows.net/c?sv=1&sig={S}"],
["x", "https://s3/x?X-Amz-Credential={S}&X-Amz-Signature={S}&X-Amz-Security-Token={S}"],
["x", "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={S};EndpointSuffix=core"],
["x", "--config", "{\"api_key\": \"{S}\", \"x\": 1}"], ["x", "{\"api_key\":\"{S}\"}"], ["x", "{'token': '{S}'}"],
["x", "{\\\"token\\\": \\\"{S}\\\"}"],
 ["sh", "-c", "export TOKEN={S}; python x"],
["sh", "-c", "python t.py --token '{S} abc {S}'"], ["sh", "-c", "curl -H 'Authorization: Bearer {S}' https://x"],
["sh", "-c", "PASSWORD=\"{S}\" python t.py"], ["bash", "-lc", "mysql -uroot -p{S} db"],
["python", "-c", "import os; login(token='{S}')"], ["python", "-c", "login(token = \"{S}\")"],
["python", "-c", "os.environ[\"HF_TOKEN\"]=\"{S}\""], ["python", "-c", "os.environ['WANDB_API_KEY'] = '{S}'"],
["mysql", "-u", "root", "-p{S}"], ["sshpass", "-p", "{S}", "ssh", "h"], ["redis-cli", "-a", "{S}"],
["docker", "login", "-u", "x", "-p", "{S}"], ["smbclient", "-U", "u%{S}"],
["wandb", "login", "0123456789abcdef0123456789abcdef01234567{S}"], ["x", "{HF}"], ["x", "--model", "{HF}"],
["x", "--x={HF}"], ["x", "ghp_{S}{S}{S}"], ["x", "AKIAIOSFODNN7EXAMPLE"], ["x", "sk-proj-{S}"], ["x", "sk-{S}{S}{S}"],
["x", "eyJhbGciOi.{S}.{S}"], ["x", "github_pat_{S}{S}"], ["x", "xoxb-12-{S}"], ["x", "nvapi-{S}{S}"],
["x", "glpat-{S}{S}"],
["{HF}", "x"], ["/opt/{HF}/bin/x"], ["python train.py --token {S}"], ["python train.py --password={S} x"],
["https://u:{S}@h/x"], ["TOKEN={S}"], ["x", "--token", "hf_AbCdEfGhIjKl"], ["x", "--client-secret", "{S}"],
["x", "--clientSecret", "{S}"], ["x", "--secret", "{S}"], ["x", "--credential", "{S}"], ["x", "--credentials", "{S}"],
["x", "--authorization", "{S}"], ["x", "--auth", "{S}"], ["x", "--authorization", "Bearer", "{S}"],
["x", "Authorization:", "Bearer", "{S}"], ["x", "PASSWORD:{S}"], ["x", "password", ":", "{S}"],
["x", "--password", "-{S}"], ["x", "--key", "{S}"], ["x", "--KEY", "{S}"], ["x", "--Token", "{S}"],
["x", "-token", "{S}"], ["x", "/p:password={S}"], ["x", "--key:{S}"], ["x", "-e", "DB_PASSWORD={S}"],
["docker", "run", "-eAPI_KEY={S}"], ["x", "--env", "A=1,PASSWORD={S},B=2"], ["x", "--set", "db.password={S}"],
["x", "--set", "global.secretKey={S}"], ["x", "API_KEY_PROD={S}"], ["x", "TOKEN2={S}"], ["x", "HF_TOKEN_RO={S}"],
["x", "SECRET_KEY_BASE={S}"], ["x", "MYSQL_PWD={S}"], ["x", "PGPASSWORD={S}"], ["x", "--hf-token", "{S}"],
["x", "--hftoken", "{S}"], ["x", "--wandb_key", "{S}"], ["x", "--auth-tokens", "{S}"], ["x", "--api-keys", "{S},{S}"],
["x", "--ssl-key-password", "{S}"], ["x", "--passphrase", "{S}"], ["x", "--passwd", "{S}"], ["x", "--jwt", "{S}"],
["openssl", "-passin", "pass:{S}"], ["x", "-----BEGIN RSA PRIVATE KEY-----\n{S}\n-----END RSA PRIVATE KEY-----"],
["x", "token%3D{S}"], ["x", "?access_token={S}"], ["x", "Cookie: a={S}; b={S}"], ["x", "--cookie", "{S}"],
["x", "--header", "Cookie: a=1; b={S}"], ["x", "--password", "{S}", "--token", "{S}"],
["ssh", "h", "python", "t.py", "--token", "{S}"], ["x", "https://hooks.slack.com/services/T0/B0/{S}"],
["x", "--basic-auth", "u:{S}"], ["x", "Proxy-Authorization: Basic {S}"], ["x", "--token=\n{S}"], ["x", "--token {S}"],
["x", "--secret_id", "{S}"], ["x", "--aws-secret-access-key", "{S}"], ["x", "--aws_access_key", "{S}"],
["x", "accessToken={S}"], ["x", "--refreshToken", "{S}"], ["x", "--x-token", "{S}"], ["x", "--bearer", "{S}"],
["x", "machine h login me password {S}"], ["x", "$(cat <<< token={S})"], ["x", "`TOKEN={S} x`"],
["x", "a=1 b=2 token={S}"], ["x", "\ttoken:\t{S}"], ["ray::Train(token={S})"],
["x", "--header", "Authorization: Digest username=a, response={S}"], ["x", "TOKEN=\\\"{S}\\\""],
["x", "--password", "********{S}"], ["zip", "-P", "{S}"], ["7z", "-p{S}"], ["ldapsearch", "-w", "{S}"],
["http", "-a", "u:{S}"], ["python", "train.py", "--wandb-api-key", "{S}"],
["python", "t.py", "--huggingface_token", "{S}"], ["python", "t.py", "--hf_auth_token={S}"],
["python", "t.py", "--openai_key", "{S}"], ["python", "t.py", "--OPENAI_API_KEY", "{S}"],
["accelerate", "launch", "--hub_token", "{S}"], ["python", "t.py", "--hub_token={S}"],
["python", "t.py", "--push_to_hub_token", "{S}"], ["vllm", "serve", "m", "--api-key", "{S}"],
["vllm", "serve", "m", "--api-key={S}", "--served-model-name", "x"],
["text-generation-launcher", "--hf-api-token", "{S}"], ["tritonserver", "--http-restricted-api", "inference:key={S}"],
["ray", "start", "--redis-password", "{S}"], ["ray", "start", "--redis-password={S}"],
["jupyter", "lab", "--NotebookApp.token={S}"], ["jupyter", "lab", "--ServerApp.password", "{S}"],
["jupyter-lab", "--IdentityProvider.token={S}"],
["mlflow", "server", "--backend-store-uri", "mysql+pymysql://root:{S}@db/mlflow"],
["python", "t.py", "--db", "mongodb+srv://u:{S}@cl.example/"],
["python", "t.py", "--storage", "s3://AKIAIOSFODNN7EXAMPLE:{S}@bucket/x"],
["rclone", "copy", "--s3-secret-access-key", "{S}"], ["rclone", "--sftp-pass", "{S}"],
["aws", "configure", "set", "aws_secret_access_key", "{S}"], ["kubectl", "--token={S}", "get"],
["helm", "install", "--set", "auth.password={S}"], ["helm", "login", "-u", "x", "-p", "{S}"],
["docker", "run", "-e", "HF_TOKEN={S}", "img"], ["docker", "run", "--env=HF_TOKEN={S}"],
["docker", "run", "--env", "WANDB_API_KEY={S}"], ["apptainer", "exec", "--env", "A=b,TOKEN={S}", "img"],
["singularity", "run", "--docker-password", "{S}"], ["srun", "--export=ALL,WANDB_API_KEY={S}", "python"],
["sbatch", "--wrap", "export T_KEY={S}; python"], ["mpirun", "-x", "NGC_API_KEY={S}", "python"],
["torchrun", "t.py", "logger.wandb.key={S}"], ["env", "-i", "PASSWORD={S}", "x"],
["bash", "-c", "HF_TOKEN={S} WANDB_API_KEY={S} python t.py"],
["bash", "-c", "curl -s -X POST -d '{\"password\":\"{S}\"}' http://x"],
["bash", "-c", "curl -s -X POST -d \"{\\\"token\\\": \\\"{S}\\\"}\" http://x"],
["curl", "-d", "password={S}&user=me", "http://x"], ["curl", "--data-urlencode", "client_secret={S}"],
["curl", "--cookie", "sid={S}"], ["curl", "-H", "Cookie: sid={S}"],
["curl", "-H", "PRIVATE-TOKEN: {S}"], ["curl", "-H", "X-Vault-Token: {S}"], ["curl", "-H", "api-key: {S}"],
["curl", "-H", "x-goog-api-key:{S}"], ["curl", "-H", "Authorization: token {S}"],
["curl", "-H", "Authorization: {S}"], ["curl", "--oauth2-bearer", "{S}"],
["curl", "--proxy", "http://me:{S}@proxy:3128"], ["wget", "--header", "Authorization: Basic {S}"],
 ["wget", "--password={S}"], ["wget", "--http-password", "{S}"],
["git", "-c", "http.extraHeader=Authorization: Basic {S}", "clone"],
["git", "clone", "https://x-access-token:{S}@github.com/x"], ["openssl", "rsa", "-passin", "pass:{S}"],
["gpg", "--passphrase", "{S}"], ["ansible", "-e", "ansible_password={S}"],
["psql", "postgresql://u@h/db?password={S}"], ["psql", "host=h user=u password={S} dbname=x"],
["psql", "host=h password='{S}'"], ["mysql", "--password={S}"], ["mysql", "-u", "r", "-p{S}", "db"],
["mysqldump", "-uroot", "-p{S}"], ["redis-cli", "-h", "x", "-a", "{S}"], ["redis-cli", "-u", "redis://u:{S}@h"],
["mongosh", "-u", "a", "-p", "{S}"], ["sqlcmd", "-P", "{S}"], ["influx", "-password", "{S}"],
["java", "-Dpassword={S}", "-jar"], ["java", "-Djavax.net.ssl.trustStorePassword={S}"], ["node", "--token", "{S}"],
["npm", "config", "set", "//registry.npmjs.org/:_authToken={S}"],
["pip", "install", "--index\u002durl", "https://__token__:{S}@pypi.x/simple"],
["pip", "install", "--extra-index\u002durl=https://u:{S}@h/s"], ["twine", "upload", "-p", "{S}"],
["uv", "pip", "install", "--index", "https://u:{S}@h"],
["python", "-c", "import os\nos.environ['K']='x'\nwandb.login(key='{S}')"], ["python", "-c", "openai.api_key='{S}'"],
["python", "-c", "openai.api_key = \"{S}\""], ["python", "-c", "c=dict(password='{S}')"],
["python", "-c", "x={'auth': {'password': '{S}'}}"],
["python", "t.py", "--config-json", "{\"a\":{\"hf_token\":\"{S}\"}}"],
["python", "t.py", "--cfg", "{api_key: {S}, lr: 1}"], ["python", "t.py", "--cfg", "token: {S}"],
["python", "t.py", "opts.token", "{S}"], ["python", "t.py", "WANDB.API_KEY", "{S}"], ["x", "--secretKey", "{S}"],
["x", "--accessKeySecret={S}"], ["x", "--privateKey", "{S}"], ["x", "--ssh_pass", "{S}"], ["x", "--smtp-pass={S}"],
["x", "--userpass", "{S}"], ["x", "--dbpass", "{S}"], ["x", "--db_pass", "{S}"], ["x", "--pw", "{S}"],
["x", "--passcode", "{S}"], ["x", "--pass-phrase", "{S}"], ["x", "--encryption-key", "{S}"],
["x", "--encryptionKey={S}"], ["x", "--license-key", "{S}"], ["x", "--licence_key", "{S}"],
["x", "--service-account-key", "{S}"], ["x", "--shared_secret", "{S}"], ["x", "--webhook-secret", "{S}"],
["x", "--signing_key", "{S}"], ["x", "--master-key", "{S}"], ["x", "--sas", "{S}"], ["x", "--sas-token", "{S}"],
["x", "--connection-string", "Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey={S}"],
["x", "--session-token", "{S}"], ["x", "--id-token", "{S}"], ["x", "--refresh_token={S}"],
["x", "--bearer-token", "{S}"], ["x", "--bot-token", "{S}"], ["x", "--telegram_token", "{S}"],
["x", "--slack-webhook", "https://hooks.slack.com/services/T00/B00/{S}"],
["x", "--discord", "https://discord.com/api/webhooks/123/{S}"], ["x", "--Password:", "{S}"], ["x", "/password:{S}"],
["x", "/PASSWORD", "{S}"], ["x", "-pwd", "{S}"], ["x", "-P:password={S}"], ["x", "@token={S}"], ["x", "#token={S}"],
["x", "token:{S}"], ["x", "token :", "{S}"], ["x", "TOKEN =", "{S}"], ["x", "--token", "=", "{S}"],
["x", "--token={S},{S}"], ["x", "--tokens-file", "/a", "--token", "{S}"], ["x", "--password", "{S}"],
["x", "--password", "--{S}"], ["x", "--", "--token", "{S}"], ["x", "--token\t{S}"], ["x", "-Ttoken={S}"],
["x", "--token=\"{S}\""], ["x", "--token='{S}'"], ["x", "TOKEN+={S}"],
["x", "export", "TOKEN={S}"], ["x", "set", "TOKEN", "{S}"], ["setenv", "TOKEN", "{S}"],
["x", "--env", "TOKEN", "{S}"], ["x", "ToKeN={S}"], ["x", "HFTOKEN={S}"], ["x", "MYAPIKEY={S}"], ["x", "apiKey:{S}"],
["x", "api key: {S}"],
["x", "pwd: {S}"], ["x", "user=me pass={S}"],
["x", "me:{S}@db.example.com"], ["x", "ftp://me:{S}@h"], ["x", "smb://d;me:{S}@h/s"], ["x", "amqp://g:{S}@h:5672/v"],
["x", "jdbc:postgresql://h/db?user=u&password={S}"], ["x", "https://h/#access_token={S}"],
["x", "https://h/p;token={S}"], ["x", "https://h/?X-Amz-Signature={S}"], ["x", "https://h/?sv=1&amp;sig={S}"],
["x", "wandb_v1_{S}{S}{S}"], ["x", "dapi0123456789abcdef0123456789abcdef"], ["x", "pplx-{S}{S}{S}{S}"],
["x", "ATATT3x{S}{S}{S}=01AB23CD"], ["x", "tskey-auth-{S}-{S}{S}"], ["x", "sntrys_{S}{S}"], ["x", "tgp_v1_{S}{S}"],
["x", "rpa_AB12CD34EF56GH78IJ90KL12{S}"], ["x", "fw_{S}{S}"], ["x", "secret_{S}{S}{S}"],
["x", "pat-na1-01234567-89ab-cdef-0123-456789abcdef"], ["vastai", "set", "api-key", "{S}"],
["x", "https://h/o?X-Goog-Algorithm=a&X-Goog-Signature={S}"], ["tool", "Basic", "{S}"], ["tool", "-H", "basic {S}"],
["x", "key_id: {S}{S}"]
"""
COMMANDS: list[list[str]] = [
    [word.replace("{S}", S).replace("{HF}", HF) for word in words] for words in json.loads(f"[{_LINES}]")
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
python t.py MODEL.TOKENIZER bert DATASET.NUM_TOKENS 3 OPTIM.KEY x DATA.IMAGE_KEY jpg MODEL.PAD_TOKEN <pad> seed
3
rsync -a me@h.tld:/x scp f me@h.tld:/p git@github.com:a/b docker run repo/img:tag@sha256:abcd ssh -p 22
me@host.tld curl -su me https://x
python t.py --model sasrec --sasl x --pwm 3 --sas-rec 1 --padtoken <pad> --mask_token_id 103 --bos_token_id 1
--no-token-dropout --token_dim 4
python t.py --opts model.token_dim 512 model.num_tokens 16 --key-padding-mask --add-special-tokens
--strip-tokens --tokens_per_sample 512
python t.py --keys-to-log loss,acc --log-keys a,b --best-key acc --metric-key acc --password-protected false
--auth-mode none --num-auth 3
accelerate launch --num_processes 8 --mixed_precision bf16 t.py --hub_model_id x --use_auth_token=True
--token_classification 1
python -m lm_eval --tasks mmlu --model_args pretrained=x,trust_remote_code=True --passes 3 --bypass --max_pass 3
--pass_at_k 10 --pass@1
python eval.py --pass-k 3 --k-pass 3 pass_rate=0.3 --n-pass 5 tokenizer=bert keypoints=17 monkey=3 keyboard=us
turkey=1 --hotkeys a,b
nccl-tests/build/all_reduce_perf -b 8 -e 128M -f 2 -g 8 python t.py +trainer.max_tokens=3 ++data.keys=[a,b]
~model.token_mixer
sbatch --export=ALL --account=abc --qos=normal python t.py --desecrate --compass a --trespass b
mysql -u root -h db -P 3306 zip -r a.zip b 7z x a.7z http --follow x https://h:8443/p@q user@host:22 a:b@c
me@x.y:/p twine check d
""".strip().splitlines()
