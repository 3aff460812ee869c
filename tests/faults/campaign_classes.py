"""Faults of processes, checkpoints, inputs and the system, each class a function of a Case."""

import errno
import json
import os
import shutil
import signal
import struct
import subprocess
import time

import campaign_disk
from campaign_case import (CONFIG, DISAGREEMENT, LOAD, MEMORY, NO_RIGHT, NOT_SAVED, NUMERIC, SAVE, SAVE_EVERY, STALLED,
                           STOPPED, TOPOLOGY, digest_of, fault_class, launch, offloaded)


def at_a_random_moment(case, job, earliest=0.0):
    pids = case.wait_for_ranks(job)
    moment = case.random.uniform(earliest, case.reference.seconds)
    case.note(f"after {moment:.3f} s")
    time.sleep(moment)
    return pids


def send(number, *pids):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


@fault_class("kill of ranks, then resume", 40)
def killed(case):
    number = case.random.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT))
    victims = case.random.sample(range(case.ranks), case.random.randint(1, case.ranks))
    case.note(f"{number.name} to ranks {victims} of {case.ranks}, stage {case.stage}")
    more = [*case.random.choice(((), IN_THE_BACKGROUND)), *(offloaded(case) if case.random.random() < 0.25 else ())]
    environment = case.random.choice(({}, {"ZERO_TRANSPORT": "mpi"}, {"ZERO_EXECUTOR": "worker"}))
    case.note(f"{environment} {' '.join(more)}")
    job = case.start(*more, wrapper=NO_CORE, environment=environment)
    pids = at_a_random_moment(case, job)
    send(number, *(pids[rank] for rank in victims if rank in pids))
    case.end(job, range(256), limit=30)  # 0 if it had just ended
    case.finishes(stage=case.random.randrange(4))


IN_THE_BACKGROUND = ("--set", "checkpoint.writer.decoupled=true")
NO_CORE = ("sh", "-c", 'ulimit -c 0; exec "$@"', "sh")


@fault_class("end of the launcher", 8)
def launcher_ended(case):
    number = case.random.choice((signal.SIGKILL, signal.SIGHUP, signal.SIGTERM, signal.SIGINT))
    case.note(f"{number.name} to mpirun")
    job = case.start()
    at_a_random_moment(case, job)
    job.process.send_signal(number)
    job.finish(30)
    case.require(not (left := job.leftovers()), f"left behind: {left}", job)
    case.finishes()


@fault_class("stop requests", 24)
def stop_request(case):
    number = case.random.choice((signal.SIGTERM, signal.SIGINT, signal.SIGUSR2))
    twice = case.random.random() < 0.4
    rank = case.random.randrange(case.ranks)
    case.note(f"{number.name} to rank {rank} of {case.ranks}, {'twice' if twice else 'once'}")
    job = case.start(*case.random.choice(((), IN_THE_BACKGROUND)))
    pids = case.wait_for_ranks(job)
    case.wait_for_steps(job)
    time.sleep(case.random.uniform(0, case.reference.seconds / 2))
    send(number, pids[rank])
    if twice:
        time.sleep(case.random.uniform(0, 0.03))
        send(number, pids[rank])
    ends_at_once = twice and number != signal.SIGUSR2
    case.end(job, range(256) if ends_at_once else (0, STOPPED), limit=30)
    case.finishes()


@fault_class("no time to save on a stop", 3)
def no_time_to_save(case):
    case.with_checkpoints()
    job = case.start("--set", "zero_core.preempt_grace_s=1e-9")
    pids = case.wait_for_ranks(job)
    case.wait_for_steps(job, SAVE_EVERY + 1)
    send(signal.SIGTERM, pids[0])
    case.end(job, (0, NOT_SAVED), limit=30)
    case.finishes()


@fault_class("a rank that stands still", 6)
def stopped_rank(case):
    case.ranks = max(case.ranks, 2)
    case.reference = case.programs.reference(case.ranks)
    job = case.start("--set", "zero_core.time_limit_seconds=1", checkpoint=False, steps=100000)
    pids = case.wait_for_ranks(job)
    case.wait_for_steps(job)
    rank = case.random.randrange(case.ranks)
    send(signal.SIGSTOP, pids[rank])
    case.note(f"SIGSTOP to rank {rank} of {case.ranks}")
    case.expect_any_bits()
    case.end(job, (STALLED,), f"rank {rank}", limit=30, messages=(1,))


@fault_class("slow ranks", 8)
def slow_ranks(case):
    job = case.start()
    pids = list(case.wait_for_ranks(job).values())
    for _ in range(6):
        pid = case.random.choice(pids)
        send(signal.SIGSTOP, pid)
        time.sleep(case.random.uniform(0.01, 0.3))
        send(signal.SIGCONT, pid)
    case.end(job, (0,))
    case.finishes()


def damage(case, path):
    """Damages the file in one of the usual ways; returns the name of the damage."""
    kind = case.random.choice(("bit", "bit", "bit", "cut", "longer", "zeros", "missing", "link", "pipe"))
    data = bytearray(path.read_bytes())
    place = case.random.randrange(len(data))
    if kind == "bit":
        data[place] ^= 1 << case.random.randrange(8)
    elif kind == "cut":
        del data[place:]
    elif kind == "longer":
        data += b"x"
    elif kind == "zeros":
        end = min(len(data), place + 64)
        # Sets one bit if there are zeros already.
        data[place:end] = b"\1" + bytes(end - place - 1) if not any(data[place:end]) else bytes(end - place)
    path.unlink()
    if kind == "link":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind != "missing":
        path.write_bytes(data)
    case.note(f"{kind} at byte {place} of {path.parent.name}/{path.name}")


def random_file(case, tag):
    return case.random.choice(sorted((case.checkpoints / tag).iterdir()))


@fault_class("damage to the newest checkpoint", 40)
def damaged_checkpoint(case):
    case.with_checkpoints()
    damage(case, random_file(case, "step-120"))
    verified = subprocess.run([case.programs.zero, "checkpoint", "verify", str(case.checkpoints), "--tag", "step-120"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30)
    case.require(verified.returncode == LOAD and "step-120" in verified.stdout,
                 f"verify: code {verified.returncode}: {verified.stdout}")
    job = case.start()
    case.end(job, (0,), messages=None)
    case.require("step-120" in job.text() and min(steps := steps_logged(case)) == 81, f"it begins at {min(steps)}", job)
    case.require(digest_of(case.logs[-1]) == case.reference.digest, "not the bits of the undisturbed run", job)


def steps_logged(case):
    return [json.loads(line)["step"] for line in case.logs[-1].read_text().splitlines() if '"step"' in line]


@fault_class("damage to all checkpoints", 8)
def damaged_checkpoints(case):
    case.with_checkpoints()
    for tag in ("step-80", "step-120"):
        damage(case, random_file(case, tag))
    case.end(case.start(), (LOAD,), "step-(80|120)", messages=(1,))


@fault_class("damage, and no older one allowed", 8)
def damaged_without_fallback(case):
    case.with_checkpoints()
    shards = [path for path in sorted((case.checkpoints / "step-120").iterdir()) if "shard" in path.name]
    damage(case, case.random.choice(shards))
    job = case.start("--set", "zero_core.resume_fallback=false")
    case.end(job, (LOAD,), "step-120", messages=(1,))


@fault_class("shards that belong elsewhere", 4)
def foreign_shard(case):
    case.with_checkpoints()
    name = f"shard-00001-of-{case.ranks:05}.safetensors"
    shutil.copy(case.checkpoints / "step-80" / name, case.checkpoints / "step-120" / name)
    case.finishes(words=["step-120"])


@fault_class("damage to hints and leftovers", 4)
def damaged_hints(case):
    case.with_checkpoints()
    (case.checkpoints / "latest").write_bytes(case.random.randbytes(case.random.randrange(40)))
    (case.checkpoints / f".tmp-step-160-{case.random.randrange(1 << 60):032x}").mkdir()
    case.finishes()
    case.require(min(steps_logged(case)) == 121, "not from the newest")


def model_file(case):
    """Exports a model of the reference's last step."""
    folder = case.folder / "model"
    subprocess.run([case.programs.zero, "checkpoint", "export", str(case.reference.folder / "c"), str(folder)], check=True,
                   stdout=subprocess.DEVNULL)
    return folder / "model.safetensors"


@fault_class("damage to weights of --init", 16)
def damaged_weights(case):
    path = model_file(case)
    data = bytearray(path.read_bytes())
    header = 8 + struct.unpack("<Q", data[:8])[0]
    kind = case.random.choice(("bit", "bit", "cut", "longer", "infinite"))
    if kind == "bit":
        place = case.random.choice([i for i in range(header) if chr(data[i]) not in " \n"])
        data[place] ^= 1 << case.random.randrange(8)
    elif kind == "cut":
        place = case.random.randrange(len(data))
        del data[place:]
    elif kind == "longer":
        place = len(data)
        data += b"x"
    else:
        place = header + 4 * case.random.randrange((len(data) - header) // 4)
        data[place:place + 4] = struct.pack("<f", case.random.choice((float("nan"), float("inf"))))
    path.write_bytes(data)
    case.note(f"{kind} at byte {place} of {header} + {len(data) - header}")
    job = case.start("--init", path, checkpoint=False, steps=2)
    case.expect_any_bits()
    case.end(job, (LOAD,), "model", messages=(1,))


@fault_class("damage to the config", 24)
def damaged_config(case):
    good = {"train_batch_size": 12, "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "betas": [0.9, 0.95]}},
            "zero_optimization": {"stage": 2}, "bf16": {"enabled": False}, "gradient_clipping": 1.0}
    text = bytearray(json.dumps(good, indent=1).encode())
    for _ in range(case.random.randint(1, 3)):
        place = case.random.randrange(len(text))
        action = case.random.randrange(4)
        if action == 0:
            text[place] ^= 1 << case.random.randrange(8)
        elif action == 1:
            del text[place:place + case.random.randint(1, 9)]
        elif action == 2:
            text[place:place] = case.random.choice((b"{", b"[", b"1e999", b"-", b"\0", b'"', b",", b"null", b"\xff"))
        else:
            text[place:place] = text[:case.random.randrange(40)]
    path = case.folder / "config.json"
    path.write_bytes(text)
    case.note(repr(bytes(text)))
    case.expect_any_bits()
    job = case.start("--deepspeed_config", path, checkpoint=False, steps=1)
    code = case.end(job, (0, CONFIG), limit=30)
    case.require(code == 0 or any("config.json" in m or "train_batch_size" in m for m in job.messages()), "no file", job)


@fault_class("disagreement of inputs", 20)
def disagreement(case):
    case.ranks = case.random.choice((2, 3))
    case.with_checkpoints()
    other = case.random.randrange(case.ranks)
    (case.folder / "a.txt").write_text("All is well that ends well. " * 99)
    (case.folder / "b.txt").write_text("All is ill that ends well. " * 99 + "x" * 99)
    values = {"--steps": (40, 50), "--seed": (1, 2), "--sequence-length": (8, 9), "--stage": (1, 3),
              "--model": ("tiny", "llama-tiny"), "--data": ("a.txt", "b.txt"), "--save-every": (5, 6), "--resume": ("step-80", "step-120"), "--keep": (2, 3)}
    for key, pair in (("optimizer.params.lr", (0.1, 0.2)), ("bf16.enabled", ("true", "false")),
                      ("gradient_clipping", (1, 2)), ("zero_core.verify_every", (3, 4)),
                      ("train_micro_batch_size_per_gpu", (1, 2)), ("zero_core.time_limit_seconds", (500, 501))):
        values[key] = pair
    name = case.random.choice(sorted(values))
    case.note(f"{name} differs on rank {other} of {case.ranks}")
    commands = []
    for rank in range(case.ranks):
        value = values[name][rank == other]
        given = [name, value] if name.startswith("--") else ["--set", f"{name}={value}"]
        base = {"--model": "tiny", "--sequence-length": 16, "--threads": 1, "--steps": 20}
        commands.append([case.programs.train_gpt, "--checkpoint", str(case.checkpoints),
                         *(str(part) for pair in base.items() if pair[0] != name for part in pair), *map(str, given)])
    case.end(case.start_each(*commands), (DISAGREEMENT,), name.lstrip("-"),
             messages=(1,), limit=30)


@fault_class("a bit that changes on the wire", 8)
def flipped_payload(case):
    case.ranks = case.random.choice((2, 3))
    case.reference = case.programs.reference(case.ranks)
    rank = case.random.randrange(case.ranks)
    number = case.random.randint(1, 400)
    job = case.start("--set", "zero_core.verify_comm=true", environment={"ZERO_TRANSPORT": "mpi"},
                     wrapper=case.failing(f"send payload {number} {number} flip", rank=rank))
    case.end(job, (NUMERIC,), f"(all_gather|reduce_scatter|broadcast) of unit .* bytes that rank {rank} sent are not those "
             f"that rank [^{rank}] received", messages=(1,))
    case.finishes("--set", "zero_core.verify_comm=true")


@fault_class("limits of the system", 16)
def limits(case):
    case.with_checkpoints()
    kind = case.random.choice(("files", "size", "size", "space", "space", "log", "small disk", "small disk"))
    case.note(kind)
    if kind == "files":
        job = case.start(wrapper=["sh", "-c", f'ulimit -n {case.random.randint(18, 24)}; exec "$@"', "sh"])
        if case.end(job, (0, TOPOLOGY, SAVE, LOAD)) != 0:  # some of them are enough
            case.require("ulimit -n" in job.text(), "the limit is not named", job)
    elif kind == "size":
        # The limit is smaller than the shared files of ranks (memory, code 13) or than a shard.
        job = case.start(wrapper=["sh", "-c", f'ulimit -f {case.random.randint(1, 1500)}; exec "$@"', "sh"])
        case.end(job, (MEMORY, SAVE), "ulimit -f|--log-json", messages=(1,))
    elif kind == "space":
        limit = case.random.randint(280_000, 700_000)
        case.note(f"{limit} KiB")
        job = case.start(wrapper=["sh", "-c", f'ulimit -v {limit}; exec "$@"', "sh"])
        if case.end(job, (0, MEMORY, TOPOLOGY)) != 0:
            case.require("ulimit -v" in job.text(), "the limit is not named", job)
    elif kind == "log":
        job = case.start("--log-json", "/dev/full")
        case.end(job, (SAVE, CONFIG), "--log-json")
        return
    elif not campaign_disk.small_disk(case, SAVE):
        return NO_RIGHT
    case.finishes()


CALLS = ("create", "make", "reserve", "write", "write", "sync", "sync", "close", "rename")


@fault_class("system calls of a save that fail", 30)
def failing_calls(case):
    """EIO and similar errors at the n-th call: the save fails, and the previous checkpoint stays."""
    op = case.random.choice(CALLS)
    number = case.random.choice((errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS))
    first = case.random.randint(1, 3)
    goes_on = case.random.random() < 0.3
    case.with_checkpoints()
    more = [*(("--set", "zero_core.on_save_error=continue") if goes_on else ()), *case.random.choice(((), IN_THE_BACKGROUND))]
    job = case.start(*more, wrapper=case.failing(f"{op} .tmp-step {first} {first} {number}"))
    # Every rank makes one of each of these calls; the first close may be that of a directory, in which case nothing is
    # lost.
    surely = first == 1 and op not in ("make", "rename", "close") and not goes_on
    code = case.end(job, (SAVE,) if surely else (0, SAVE), messages=None)
    if code == SAVE:
        case.require(os.strerror(number) in job.text(), "the reason is not named", job)
    verified = subprocess.run([case.programs.zero, "checkpoint", "verify", str(case.checkpoints)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=30)
    case.require(verified.returncode == 0, f"what is left is not whole: {verified.stdout}", job)
    case.finishes()


@fault_class("system calls of an export that fail", 8)
def failing_export(case):
    """--save-model replaces an older model only by a complete one."""
    model = case.folder / "model"
    model.mkdir()
    (model / "model.safetensors").write_text("of an earlier run")
    op, number = case.random.choice(("create", "write", "sync", "close")), case.random.choice((errno.EIO, errno.ENOSPC))
    case.expect_any_bits()
    job = case.start("--save-model", model, checkpoint=False, steps=3,
                     wrapper=case.failing(f"{op} /model/ {case.random.randint(1, 2)} 9999 {number}"))
    code = case.end(job, (0, SAVE), messages=None)
    whole = (model / "model.safetensors").read_text(errors="replace") == "of an earlier run"
    case.require(whole != (code == 0), f"code {code}, and the model {'is' if whole else 'is not'} the old one", job)
    names = set(os.listdir(model))
    case.require(names == ({"model.safetensors"} if whole else {"model.safetensors", "config.json"}), f"left: {names}", job)


@fault_class("a log that cannot be written", 6)
def failing_log(case):
    more, part = (), "/log0.json"
    if case.random.random() < 0.5:
        more, part = ("--set", "tensorboard.enabled=true", "--set", f"tensorboard.output_path={case.folder}/events"), "/events/"
    number = case.random.choice((errno.EIO, errno.ENOSPC, errno.EPIPE))
    rule = f"write {part} {case.random.randint(1, 100)} 9999 {number}"
    job = case.start(*more, wrapper=case.failing(rule))
    code = case.end(job, (0, SAVE), messages=None)
    said = job.text()
    case.require(code == 0 or (part.strip("/") in said and os.strerror(number) in said), "no file or reason", job)
    case.finishes()


@fault_class("short and interrupted calls, slow disks", 12)
def harmless_calls(case):
    op, action = case.random.choice((("write", "short"), ("write", errno.EINTR), ("sync", errno.EINTR), ("write", "sleep20"),
                                     ("read", "short"), ("read", errno.EINTR), ("read", "sleep5"), ("sync", "sleep50"),
                                     ("rename", errno.EINTR)))
    part = "step-120" if op == "read" else ".tmp-step"
    last = 20 if str(action).startswith("sleep") else 3
    case.with_checkpoints()
    case.finishes(wrapper=case.failing(f"{op} {part} 1 {last} {action}"))


@fault_class("reads of a checkpoint that fail", 8)
def failing_reads(case):
    case.with_checkpoints()
    op, action, words = case.random.choice((("read", errno.EIO, "Input/output error"), ("open", errno.EIO, "Input/output"),
                                            ("read", "flip", "")))
    rule = f"{op} step-120/shard 1 9999 {action}"
    stops = case.random.random() < 0.5
    more = ("--set", "zero_core.resume_fallback=false") if stops else ()
    job = case.start(*more, wrapper=case.failing(rule))
    case.end(job, (LOAD,) if stops else (0,), "step-120/shard.*" + words, messages=None)
    if stops:
        case.finishes()


@fault_class("files that become visible late", 4)
def late_files(case):
    case.with_checkpoints()
    rule = f"open step-120/{case.random.choice(('manifest', 'shard'))} 1 {case.random.randint(1, 5)} {errno.ENOENT}"
    case.finishes(wrapper=case.failing(rule, rank=case.random.choice((0, case.ranks - 1))))
    case.require(min(steps_logged(case)) == 121, "not from the newest")


@fault_class("kill at a call of a save (K0 to K9)", 20)
def killed_in_a_save(case):
    op = case.random.choice(CALLS)
    part = case.random.choice((".tmp-step", "/c", "latest", "manifest"))
    case.with_checkpoints()
    job = case.start(wrapper=case.failing(f"{op} {part} {case.random.randint(1, 4)} 9999 kill"))
    case.end(job, range(256), limit=30)
    case.finishes(stage=case.random.randrange(4))


@fault_class("power loss during a save", 20)
def power_loss(case):
    """States in which a disk may be left, built from a record of the calls: the old or the new checkpoint is
    complete."""
    case.with_checkpoints()
    campaign_disk.lose_power(case)
    verified = subprocess.run([case.programs.zero, "checkpoint", "verify", str(case.checkpoints)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=30)
    newest = "step-160" if (case.checkpoints / "step-160").exists() else "step-120"
    case.require(verified.returncode == 0 and f"/c/{newest}: whole" in verified.stdout,
                 f"{newest} is not whole: {verified.stdout}")
    case.finishes()


@fault_class("data that change while they are read", 6)
def changed_data(case):
    data = case.folder / "data.txt"
    data.write_text("All is well that ends well. " * 1000)
    case.expect_any_bits()
    job = case.start("--data", data, checkpoint=False, steps=100000000)
    case.wait_for_ranks(job)
    case.wait_for_steps(job)
    os.truncate(data, case.random.randrange(20000))
    case.end(job, (CONFIG,), "data.txt: became shorter", limit=30)


@fault_class("two jobs on one directory", 4)
def two_jobs(case):
    first = case.start()
    case.wait_for_steps(first)
    second = case.start()
    code = second.finish(30)
    case.require(code in (0, SAVE), f"exit code {code}", second)
    case.require(code == 0 or any("another job saves here" in message for message in second.messages()), "no reason", second)
    case.end(first, (0,))
    case.finishes()


@fault_class("a rank started again by hand", 3)
def rank_again(case):
    job = case.start(steps=100000, checkpoint=False)
    pids = case.wait_for_ranks(job)
    case.wait_for_steps(job)
    rank = case.random.choice(sorted(pids))
    with open(f"/proc/{pids[rank]}/environ", encoding="utf-8", errors="surrogateescape") as file:
        environment = dict(item.split("=", 1) for item in file.read().split("\0") if "=" in item)
    environment.pop(launch.MARK, None)
    log = case.logs[-1]
    again = launch.Job(case.command(checkpoint=False), case.folder, environment | {"TMPDIR": str(case.folder)})
    try:
        code = again.finish(20)
    finally:
        again.end()
        running = job.process.poll() is None
        job.end()
    case.require(code != 0, "it ran at the same time as the other", again)
    case.require(running and log.exists(), "the job that ran has ended", job)


@fault_class("a kill for lack of memory", 3)
def out_of_memory(case):
    limit = 300 << 20
    group = campaign_disk.MemoryGroup(limit)
    if group.folder is None:
        return NO_RIGHT
    try:
        case.expect_any_bits()
        job = case.start(checkpoint=False, steps=100000000, wrapper=group.entering(case.random.randrange(case.ranks)))
        case.wait_for_steps(job)
        group.fill(limit)
        case.end(job, None, limit=30)
    finally:
        group.remove()


@fault_class("measured memory against the plan", 42)
def memory(case):
    keys = {"train_micro_batch_size_per_gpu": case.random.randint(1, 4), "zero_optimization.stage": case.stage,
            "bf16.enabled": case.random.choice(("true", "false")),
            "zero_optimization.reduce_bucket_size": case.random.choice((10000, 1000000, 500000000)),
            "zero_optimization.stage3_param_persistence_threshold": case.random.choice((0, 10000)),
            "gradient_accumulation_steps": case.random.randint(1, 3)}
    more = launch.settings(keys)
    model = case.random.choice(("tiny", "llama-tiny", "mini"))
    if case.stage > 0 and case.random.random() < 0.4:
        more += offloaded(case)
    if case.random.random() < 0.3:
        more += ["--recompute"]
    case.note(f"{model}, {case.ranks} ranks: {' '.join(more)}")
    length = case.random.choice((8, 16, 64))
    summary = launch.train(case.programs.mpiexec, case.programs.train_gpt, case.ranks,
                           ["--model", model, "--sequence-length", length, "--steps", 3, *more]).summary
    for rank in summary["ranks"]:
        planned, peak = (sum(use[which] for use in rank["memory"].values()) for which in ("planned", "peak"))
        grown = rank["resident_bytes"] - rank["baseline_bytes"]
        case.require(peak <= 1.02 * planned, f"rank {rank['rank']}: {peak} bytes at the peak, {planned} planned")
        case.require(grown <= 1.02 * planned + (16 << 20), f"rank {rank['rank']}: {grown} bytes more, {planned} planned")
