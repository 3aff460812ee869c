"""Passes the records of zero_core.json_lines on to a service, while training or afterwards:

    python3 examples/pass_on_records.py records.jsonl

Replace send() by your service's call. It runs next to the training run, so a slow service does not delay a step.
"""

import json
import sys
import time


def records(path, patience_s=60):
    """Yields the file's records, and waits for further ones until none has come for `patience_s` seconds."""
    with open(path) as file:
        line, deadline = "", time.monotonic() + patience_s
        while time.monotonic() < deadline:
            line += file.readline()
            if line.endswith("\n"):
                yield json.loads(line)
                line, deadline = "", time.monotonic() + patience_s
            else:
                time.sleep(0.2)


def send(record):
    """For example wandb.log(record, step=record["step"]) or mlflow.log_metrics(record, record["step"])."""
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    for record in records(sys.argv[1], *map(float, sys.argv[2:])):
        send(record)
