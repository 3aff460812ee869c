"""Hostile config files cost `zero config check` little time and memory, and end in code 10. Usage: attacks_test.py
ZERO"""

import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile

ZERO = sys.argv[1]
MEMORY = 256 << 20  # address space, most of it for the program's libraries
GOOD = b'{"train_batch_size": 8, "zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW", "params": {}}}'


def limit():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (10, 10))


def check(path, codes=(10,)):
    result = subprocess.run([ZERO, "config", "check", str(path)], capture_output=True, timeout=60, preexec_fn=limit)
    assert result.returncode in codes, (path.name, result.returncode, result.stderr[-300:])
    assert len(result.stderr) < 100_000, (path.name, len(result.stderr))
    return result.stderr


def attacks():
    deep, many = 10**6, 10**5
    yield "nested arrays", b"[" * deep
    yield "nested objects", b'{"a":' * (deep // 10)
    yield "nested and closed", b"[" * 400_000 + b"]" * 400_000
    yield "many keys", b"{" + b",".join(b'"k%d":1' % i for i in range(many // 2)) + b"}"
    yield "many unknown keys", b"{" + b",".join(b'"zero_optimizatio%d":1' % i for i in range(9000)) + b"}"
    yield "one key again and again", b"{" + b",".join([b'"seed":1'] * 9000) + b"}"
    yield "many elements", b'{"a":[' + b"1," * many + b"1]}"
    yield "long string", b'{"optimizer": {"type": "' + b"x" * 900_000 + b'"}}'
    yield "long unquoted text", b"{a: " + b"x, " * 300_000
    yield "long number", b'{"seed": ' + b"9" * 500_000 + b"}"
    yield "long comment", b"/*" + b"*" * 900_000
    yield "many comments", b"#\n" * 400_000
    yield "escapes", b'{"zero_optimization": {"' + b"\\u0061" * 9000 + b'": 1}}'
    yield "too long", b"{}" + b" " * (1 << 20)
    for name, text in (("NUL", b'{"seed": \0}'), ("UTF-16", GOOD.decode().encode("utf-16")), ("infinite", b'{"gradient_clipping": 1e999}'),
                       ("not a number", b'{"gradient_clipping": NaN\n}'), ("lone surrogate", b'{"a": "\\ud800"}'),
                       ("no UTF-8", b'{"a": "\xff"}'), ("overlong", b'{"a": "\xc0\x80"}'), ("huge integer", b'{"seed": 1e400}'),
                       ("minus zero batch", b'{"train_batch_size": -0}'), ("empty", b"")):
        yield name, text


def main():
    dice = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "attack.json")
        for name, text in attacks():
            path.write_bytes(text)
            assert check(path), name
        path.write_bytes(b"\xef\xbb\xbf" + GOOD)
        check(path, (0,))
        # Keys that DeepSpeed ignores are reported, but no more of them than fit on a screen.
        path.write_bytes(b"{" + b",".join(b'"own_%d":{"x":1}' % i for i in range(4900)) + b"}")
        check(path, (0,))
        for end in range(1, len(GOOD)):
            path.write_bytes(GOOD[:end])
            check(path)
        for _ in range(50):
            path.write_bytes(dice.randbytes(dice.randrange(1, 2000)))
            check(path)
        path.write_bytes(b"")
        os.truncate(path, 1 << 30)  # 1 GiB, sparse
        assert b"1 MiB" in check(path)
        yaml = pathlib.Path(folder, "attack.yaml")
        for text in (b"[" * 10**6, b"a: &a [x]\nb: *a\n", b"- " * 10**5, b"? " * 10**5, b"{a: " * 10**5, b"\xff"):
            yaml.write_bytes(text)
            check(yaml)
    print("ok")


main()
