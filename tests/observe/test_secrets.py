"""The spellings of secrets that are masked, and texts that stay as they are."""

from __future__ import annotations

import json
import time

import pytest

from holdfast.observe.redaction import redacted

S = "s3cr3t-9f1c"
KEY = "hf_0123456789ab_" + "9f1c" * 16
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJib2IifQ.c2lnbmF0dXJl-9f1c"
PEM = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC9f1c"

SPELLINGS = [
    # names and values
    f"password={S}",
    f"password = {S}",
    f"Password: {S}",
    f"PASSWORD={S}",
    f"passwd={S}",
    f"passwd: '{S}'",
    f"pwd={S}",
    f"Pwd={S};Server=db",
    f"pass={S}",
    f"DB_PASS={S}",
    f"smtp-pass: {S}",
    f"passphrase: {S}",
    f"dbPassword={S}",
    f"userPwd: {S}",
    f"token: {S}",
    f"token={S}",
    f"access_token={S}",
    f"accessToken: {S}",
    f"refresh-token={S}",
    f"id_token={S}",
    f"csrfmiddlewaretoken={S}",
    f"secret={S}",
    f"client_secret={S}",
    f"clientSecret: '{S}'",
    f"api-key: {S}",
    f"api_key={S}",
    f"apikey={S}",
    f"apiKey={S}",
    f"API key: {S}",
    f"x-api-key: {S}",
    f"X-Api-Key={S}",
    f"secret key: {S}",
    f"aws_secret_access_key = {S}",
    f"AWS_SECRET_ACCESS_KEY={S}",
    f"AWS_SESSION_TOKEN={S}",
    f"AccountName=a;AccountKey={S};EndpointSuffix=x",
    f"SharedAccessKey={S}",
    f"signing_key: {S}",
    f"HOLDFAST_ENCRYPTION_KEYS=k1:{S}",
    f"private-key={S}",
    f"jwt={S}",
    f"credentials: {S}",
    f"session_id={S}",
    f"PHPSESSID={S}",
    f"spring.datasource.password={S}",
    f"user[password]={S}",
    f"config['password'] = '{S}'",
    f"password := '{S}'",
    f"password => '{S}'",
    f"assert password == '{S}'",
    f"password: str = '{S}'",
    f"password=SecretStr('{S}')",
    f"auth=('bob', '{S}')",
    # quotes
    f'{{"password": "{S}"}}',
    f'{{"password":"{S} and more"}}',
    f'{{"password": "a\\"{S}"}}',
    json.dumps(json.dumps({"password": S})),
    json.dumps(json.dumps(json.dumps({"password": S}))),
    json.dumps(json.dumps({"password": 'a"' + S})),
    f'{{\\"password\\": \\"{S}\\"}}',
    f"{{'password': '{S}'}}",
    f"{{b'password': b'{S}'}}",
    repr({"api_key": S, "n": 1}),
    repr({"api_key": "it's " + S}),
    repr([(b"authorization", f"Bearer {S}".encode())]),
    repr(("X-Api-Key", S)),
    repr({"token": [S, S]}),
    f"environ({{'DB_PASSWORD': '{S}', 'LANG': 'C'}})",
    f"password=`{S}`",
    f"&quot;password&quot;: &quot;{S}&quot;",
    f"\\u0022password\\u0022:\\u0022{S}\\u0022",
    f"<password>{S}</password>",
    f'<ns:Password type="text">{S}</ns:Password>',
    # headers
    f"Authorization: Bearer {S}",
    f"authorization: bearer {S}",
    f"Authorization: Basic {S}",
    f"Authorization: Token {S}",
    f"Authorization: {S}",
    f"Proxy-Authorization: Basic {S}",
    f"{{'Authorization': 'Bearer {S}'}}",
    f'-H "Authorization: Bearer {S}" https://host',
    f'Authorization: Digest username="bob", response="{S}"',
    f"Authorization: AWS4-HMAC-SHA256 Credential=a/b, Signature={S}",
    f"sent bearer {S}",
    "sent Basic dXNlcjpzM2NyM3QtOWYxYw==",
    f"Cookie: theme=dark; sid={S}",
    f"Set-Cookie: sid={S}; Path=/; HttpOnly",
    f"set-cookie: theme=dark; session={S}",
    f"X-Auth-Token: {S}",
    # addresses
    f"postgresql://user:{S}@db:5432/jobs",
    f"redis://:{S}@host/0",
    f"amqp://u:p@{S}@host/x",
    f"postgresql://u:a/{S}@host/db",
    f"https://{S}@host/repository.git",
    f"https://host/x?page=1&access_token={S}&n=2",
    f"https://host/x?key={S}",
    f"https://host/x?sig={S}",
    f"https://host/x?X-Amz-Signature={S}&n=2",
    f"https://host/x?next=%2Fa%3Ftoken%3D{S}",
    f"%7B%22password%22%3A%22{S}%22%7D",
    # command lines and statements
    f"mysql --password {S} -h db",
    f"tool --api-key {S}",
    f"tool --token={S}",
    f"curl -u bob:{S} https://host",
    f"CREATE USER bob PASSWORD '{S}'",
    f"ALTER USER bob IDENTIFIED BY '{S}'",
    f"PGPASSWORD={S} psql",
    f"MYSQL_PWD={S}",
    # shapes
    f"got {KEY}",
    f"key {KEY[:30]} was cut",
    f"got {JWT} from",
    f"whsec_{S.replace('-', 'A')}",
    "AKIAIOSFODNN7EXA9F1C",
    "ASIAIOSFODNN7EXA9F1C",
    "ghp_" + "s3cr3t9f1c" * 4,
    "github_pat_" + "s3cr3t9f1c" * 4,
    "glpat-" + "s3cr3t9f1c" * 2,
    "xoxb-123456789012-s3cr3t9f1c",
    "sk_live_s3cr3t9f1cs3cr3t",
    "sk-" + "s3cr3t9f1c" * 4,
    "sk-ant-api03-s3cr3t9f1c-s3cr3t",
    "AIza" + "s3cr3t9f1c" * 3,
    f"-----BEGIN PRIVATE KEY-----\n{PEM}\n{PEM}\n-----END PRIVATE KEY-----",
    f"'-----BEGIN RSA PRIVATE KEY-----\\n{PEM}\\n-----END RSA PRIVATE KEY-----\\n'",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{PEM} cut",
]
PARTS = (S, S.replace("-", "A"), "9f1c", "9F1C", "dXNlcjpzM2Ny")


@pytest.mark.parametrize("text", SPELLINGS)
def test_every_spelling_of_a_secret_is_masked(text: str) -> None:
    shown = redacted(text)

    assert not [part for part in PARTS if part in shown], shown
    assert "***" in shown
    assert shown == redacted(shown)


@pytest.mark.parametrize(
    "text",
    [
        "tokens are counted",
        "max_tokens=512, total_tokens: 100",
        "token_type=bearer",
        "password_file=/run/secrets/db",
        "password: must have 8 characters",
        "password is required",
        "the token: expired",
        "def login(user: str, password: str) -> None:",
        "password=None, token=null, secret=''",
        "Unexpected token < in JSON at position 0",
        "Unexpected token '<' at 3",
        "see the secret garden: it is green",
        "Basic authentication failed",
        "basic functionality of the bearer token scheme",
        "idempotency_key=order-17 limit_key=customer-7",
        "primary key: id, routing_key=a.b.c",
        "KeyError: 'customer'",
        "http://host:8080/path?email=a@b.c",
        "http://[::1]:8080/x@y",
        "ssh://git@github.com/x/y",
        "PWD=/srv/app OLDPWD=/var",
        "12 tests pass: 12, fail: 0",
        "compass=north author=bob bypass=yes",
        "hf_jobs, hf_queue_state and hf_0123",
        "AKIA is a prefix",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        'File "/srv/token/app.py", line 3, in authorize',
        "std::token::parse failed",
        "3f2a9c1e-77aa-4b6e-9d7e-0123456789ab timed out after 30 s",
        "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ],
)
def test_innocent_texts_stay_as_they_are(text: str) -> None:
    assert text == redacted(text)


@pytest.mark.parametrize(
    "piece",
    [
        "eyJ-",
        "eyJ.",
        "token-",
        'password="',
        "password='a\\",
        'password=\\"',
        'authorization: Digest ="',
        "cookie: a;",
        "cookie:a; ",
        "-----BEGIN PRIVATE KEY-----",
        "://a:b/",
        "https://a",
        "('token', '",
        "<token ",
        "--token ",
        "basic A",
        "bearer ",
        "hf_0123456789ab_",
        "AKIA",
        "ghp_a-",
        "?a-signature",
        "-u a:",
        "password \\'",
        "token: str ",
        "auth_",
        "%22",
        "\\",
        "token[",
        "pass pwd=",
    ],
)
def test_repeated_openings_take_linear_time(piece: str) -> None:
    text = (piece * 100_000)[:100_000]
    before = time.process_time()

    redacted(text)

    assert time.process_time() - before < 2.0
