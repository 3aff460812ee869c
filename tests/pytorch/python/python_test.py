"""Tests the Python package over ranks: `python_test.py MPIEXEC PYTHON PACKAGE CASE`, where PACKAGE is the folder that
`import zerocore` finds."""

import json
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
MPIEXEC, PYTHON, PACKAGE = sys.argv[1:4]
sys.path.insert(0, str(HERE))

import idiom_page  # noqa: E402
import warm  # noqa: E402
from notice_texts import NOTICES  # noqa: E402

TORCH = ["tied", "shared", "adversary", "dropped", "experts", "resnet"]
UNLISTED = ["recurrent", "parametrized"]
TRANSFORMERS_UNLISTED = ["mamba", "clip", "whisper"]
TRAINER = ("transformers.trainer", "peft")
TRANSFORMERS = ["gpt2", "gpt2-recomputed", "gpt2-recomputed-reentrant", "llama", "qwen2", "bert", "vit", "t5", "mixtral"]


def has(module):
    find = f"from importlib.util import find_spec; raise SystemExit(find_spec('{module}') is None)"
    return subprocess.run([PYTHON, "-c", find], capture_output=True).returncode == 0


def lacks(*modules):
    """Whether one of the modules is not installed; the output says so."""
    absent = [module for module in modules if not has(module)]
    if absent:
        print(f"SKIPPED: {', '.join(absent)} not installed")
    return bool(absent)


def run(ranks, *arguments, expect=0, environment=None, script="rank.py", imports=()):
    """Returns the output of the ranks; `expect` None: any failure. `imports`: modules that warm.py imports for all ranks."""
    common = {**os.environ, "PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1"}
    python = ([PYTHON, "-W", "ignore"] if "OMP_NUM_THREADS" in (environment or {}) else
              warm.command(PYTHON, {**common, **(environment or {})} if imports else common, *imports))
    command = [MPIEXEC, "--oversubscribe", "-n", str(ranks), *python, str(HERE / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env={**common, **(environment or {})})
    fits = done.returncode == expect if expect is not None else done.returncode != 0
    if not fits:
        print(done.stdout[-3000:], done.stderr[-6000:], sep="\n")
        raise SystemExit(f"{' '.join(arguments)} on {ranks} ranks ended with {done.returncode}")
    if expect == 0 and "Exception ignored" in done.stderr:  # such as one of __del__ at the end of the script
        raise SystemExit(done.stderr[-4000:])
    return done.stdout.strip(), done.stderr


def contains(text, *parts):
    for part in parts:
        if part not in text:
            raise SystemExit(f"expected \"{part}\" in:\n{text[-4000:]}")


def torch_models():
    for ranks, accumulations, more in ((1, "1", ()), (2, "1,3", (*UNLISTED, "--", "equal_bits", "bf16", "1,3", "tied")),
                                       (3, "3", ())):
        run(ranks, "equal_bits", "fp32", accumulations, *TORCH, *more)


def transformers_models(cells=((2, "fp32", "3"), (3, "bf16", "1"))):
    if lacks("transformers"):
        return
    names = TRANSFORMERS + (["lora"] if has("peft") else [])
    for ranks, dtype, accumulations in cells:
        unlisted = ["--", "equal_bits", dtype, "1,3", *TRANSFORMERS_UNLISTED] if dtype == "fp32" else []
        run(ranks, "equal_bits", dtype, accumulations, *names, *unlisted, imports=TRAINER)


def models_everywhere():
    """All models with and without accumulation, in both dtypes."""
    for ranks in (1, 3):
        run(ranks, "equal_bits", "fp32", "1,3", *TORCH, *UNLISTED)
    transformers_models([(ranks, dtype, "1,3") for ranks in (2, 3) for dtype in ("fp32", "bf16")])


def against_torch():
    clients = [word for kind in ("adamw", "adam", "sgd", "adagrad", "configured") for word in ("--", "client", kind)]
    run(1, "plain_loop", "tied", "shared", "experts", "resnet", *clients)


def checkpoints():
    with tempfile.TemporaryDirectory() as folder:
        for saved, stage, loaded, later in ((2, "3", 1, "0"), (1, "1", 3, "SHARD_GRAD_OP")):
            digest, _ = run(saved, "save", f"{folder}/from{saved}", stage)
            again, _ = run(loaded, "load", f"{folder}/from{saved}", later)
            if digest.split()[-1] != again.split()[-1]:
                raise SystemExit(f"saved {digest}, loaded {again}")
        if run(2, f"{folder}/without_numpy", script="without_numpy.py")[0].count("without numpy") != 2:
            raise SystemExit("a rank has not come to its end")
        run(2, "latest", f"{folder}/latest", "--", "background", f"{folder}/background")
        contains(run(2, "tags", f"{folder}/tags", "--", "accumulation", f"{folder}/accumulation",
                     "--", "client_state", f"{folder}/state", "--", "random_at_other_size", f"{folder}/random", "saves",
                     script="saving.py")[0],
                 "client_state['rank']", "rank 0's is stored", "client_state['tally'] is a defaultdict")
        for ranks in (1, 3):
            contains(run(ranks, "random_at_other_size", f"{folder}/random", "loads", script="saving.py")[0],
                     "was saved on 2 ranks")


def states():
    """Nothing of a model's state is lost: saved, loaded, exported, at the end of an engine and in zero.Init."""
    with tempfile.TemporaryDirectory() as folder:
        run(2, folder, "dtypes", "transfer", "saves", "loads", "ends", "constructed", script="states.py")
        out, _ = run(1, folder, "loads", "ends", "constructed", script="states.py")
        contains(out, "saved on 2 ranks, between which 3 buffers or extra states differed")


def offload():
    with tempfile.TemporaryDirectory() as folder:
        run(2, folder, script="offload.py")


def whole_values():
    for ranks in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            run(ranks, "gathered", "--", "state_dict", "--", "meta", folder + "/model")
    run(2, "weights", "--", "loads", "--", "memory", "80", "24", script="streams.py")
    threads, _ = run(1, "threads", environment={"OMP_NUM_THREADS": "3"})
    if threads.split()[-1] != "3":  # after the start line
        raise SystemExit(f"torch has {threads} threads, not 3")


def evaluation():
    run(3, "uneven_evaluation")
    with_transformers = has("transformers")
    run(2, "redirected", *(("--", "generation") if with_transformers else ()))
    if not with_transformers:
        print("SKIPPED: transformers is not installed, and generate() is not tried")


def comparison():
    with tempfile.TemporaryDirectory() as folder:
        out, _ = run(2, "comparison", folder, "--", "offloaded_comparison", folder)
        contains(out, "stage 0", "grad_op", "optimizer state", "tokens/s", "bits equal", "TiedTransformer")
        contains("".join(out.partition("stage 1 + nvme")[1:]), "stage 1 + nvme", "stage 3 + nvme", "bits equal")
        contains(pathlib.Path(folder, "report.html").read_text(), "TiedTransformer with", "stage 3")
        figures = json.loads(pathlib.Path(folder, "report.json").read_text())
        states = [variant["memory"]["optimizer_state"]["planned"] for variant in figures["variants"]]
        if not states[0] == 2 * states[1] == 2 * states[2]:
            raise SystemExit(f"optimizer states at stages 0, 2 and 3: {states}")
    contains(run(4, "comparison_in_groups")[0], "hfsdp/2", "stage 3 + hpz + qwz + qgz/2")


def compiled():
    run(2, "transformed", "--", "compiled", "aot_eager", *(("--", "compiled", "inductor") if shutil.which("g++") else ()))
    run(1, "compiled_by_engine", "aot_eager")
    contains(run(1, "refused", "compiled", expect=None)[1], "OptimizedModule was compiled as a whole",
             "for block in model.blocks: block.compile()")
    contains(run(1, "refused", "functional", expect=None)[1],
             "parameter blocks.0.up.bias of TiedTransformer was replaced", "torch.func.functional_call")


def failures():
    contains(run(2, "fails", "evaluation", expect=12)[1], "TiedTransformer is evaluated with its parameters sharded",
             "rank 0 of 2 has another batch", "drop_last=True", "engine.train()")
    for where, part in (("forward", "a hook failed"), ("backward", "a hook failed")):
        contains(run(2, "fails", where, expect=None)[1], part)
    run(2, "fails", "order")  # another order on one rank is none
    contains(run(1, "refused", "optimizer", expect=None)[1], "optimizer RMSprop is not one of the engine's")
    contains(run(1, "refused", "option", expect=None)[1], "amsgrad of group 0 is True")
    contains(run(1, "refused", "config", expect=10)[1], "train_batch_sise")
    for launched, part in (({"WORLD_SIZE": "2", "RANK": "1"}, "as one of 2, and MASTER_ADDR, MASTER_PORT are not set"),
                           ({"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE says 2 ranks, but MPI sees 1")):
        alone = subprocess.run([PYTHON, str(HERE / "rank.py"), "refused", "nothing"], capture_output=True, text=True,
                               env={**os.environ, "PYTHONPATH": PACKAGE, **launched})
        if alone.returncode == 0:
            raise SystemExit(f"a training of one rank began under {launched}")
        contains(alone.stderr, part)


def run_idioms(file, ranks, **environment):
    """One JSON object for each idiom of idioms/FILE.py and stage; ends the test if one is neither right nor refused."""
    with tempfile.TemporaryDirectory() as folder:
        out, _ = run(ranks, folder, file, script="idioms/run.py",
                     environment={"PYTHONPATH": f"{PACKAGE}:{HERE}:{PACKAGE}_tests", **environment})
    cells = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    if not cells:
        raise SystemExit(f"idioms/{file}.py ran nothing")
    wrong = [cell for cell in cells if not idiom_page.is_right(cell)]
    if wrong:
        raise SystemExit("\n".join(json.dumps(cell) for cell in wrong))
    return cells


def idioms():
    """Each idiom of a training script gives plain torch's numbers, or the error that its test names; docs/idioms.md
    lists which. Each runs on 1, 2 or 3 ranks."""
    idiom_page.check([cell for ranks in (1, 2, 3) for cell in run_idioms("turn", ranks)])


def idioms_on_device_thread():
    """The same with backward passes on another thread, as autograd runs the nodes of a GPU."""
    for ranks in (1, 2, 3):
        run_idioms("turn", ranks, ZERO_BACKWARD_THREAD="1")


def idioms_everywhere():
    """All idioms on 1, 2 and 3 ranks, with backward passes on either thread."""
    for ranks in (1, 2, 3):
        run_idioms("all", ranks)
        run_idioms("all", ranks, ZERO_BACKWARD_THREAD="1")


def random_scripts(first=0, counts=(6, 8, 6)):
    """Scripts that combine habits of training loops, against plain PyTorch."""
    for ranks, count in zip((1, 2, 3), counts):
        contains(run(ranks, str(first), str(count), script="random_scripts.py")[0], f"{count} scripts, 0 wrong")


def random_scripts_everywhere():
    """300 of them."""
    for first in range(0, 100, 25):
        random_scripts(first, (25, 25, 25))


def end(ranks, *arguments, expect=0):
    """Returns the output and errors of endings.py, which must end within a minute."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        more = [folder] if arguments[0] in ("stops", "alone") else []
        out, err = run(ranks, *arguments, *more, expect=expect, script="endings.py",
                       environment={"PYTHONPATH": f"{PACKAGE}:{HERE}"})
    if time.monotonic() - begin > 60:
        raise SystemExit(f"{' '.join(arguments)} took {time.monotonic() - begin:.0f} s")
    return out, err


def endings():
    """A signal to one rank stops all of them after the same step; a call that only one rank makes is named."""
    contains(end(2, "stops", "uncaught", "3", "SIGTERM", expect=21)[0], "the ranks have finished step 3",
             "the last steps are in no checkpoint")
    contains(end(2, "stops", "saved", "0", "SIGINT", expect=20)[0], "rank 0: interrupted after 3", "rank 1: interrupted after 3")
    contains(end(2, "stops", "asks", "3", "SIGUSR2")[0], "rank 0: stops after 3", "rank 1: stops after 3")
    contains(end(1, "stops", "goes_on", "0", "SIGTERM")[0], "interrupted after 3", "went on to 9")
    contains(end(1, "stops", "own", "0", "SIGTERM")[0], "has had 1 signals, at step 6 False")
    end(1, "stops", "twice", "0", "SIGTERM", expect=128 + 15)
    contains(end(1, "before", "SIGINT")[0], "interrupted at once False")
    contains(end(1, "worker", "0")[0], "the worker ended by signal 15")
    contains(end(2, "alone", "save_checkpoint", "0", "ends", expect=12)[1], "the end of the job", "in engine.save_checkpoint() of")
    # A read may be the very exchange with which the other rank's forward begins; then the call after it differs.
    contains(end(2, "alone", "read", "3", "steps", expect=12)[1], "the ranks disagree", "in engine.forward() of Net")
    contains(end(2, "alone", "digest", "3", "steps", expect=12)[1], "in engine.digest() of Net", "in engine.forward() of Net")
    contains(end(2, "skips", "batch", "0", expect=12)[1], "the end of the job", "Rank 0 was in engine.forward()")
    contains(end(2, "skips", "zero_grad", "3", expect=12)[1], "the ranks disagree")
    contains(end(2, "by_hand", "3", expect=12)[1], "DisagreementError: the ranks disagree", "Rank 1 was in engine.digest()")


def failing():
    """Passes that end by an exception, which the script catches, count for nothing; two threads take turns."""
    for ranks in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            contains(run(ranks, folder, script="failing.py")[0], "passes are forgotten")


def socket_at_a_port():
    """Binds a port below those that the system assigns to other processes meanwhile."""
    for port in random.sample(range(15000, 30000), 200):
        bound = socket.socket()
        try:
            bound.bind(("", port))
        except OSError:
            bound.close()
        else:
            return bound
    raise SystemExit("no free port from 15000 to 30000")


def rendezvous():
    """torch's variables set elsewhere: too early, stale, or in use."""
    stale = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "job-master-0.example", "MASTER_PORT": "23456"}
    out, err = run(2, "init", environment=stale, script="rendezvous.py")
    met = re.findall(r"met 2 ranks at 127\.0\.0\.1:(\d+)", out)
    if len(met) != 2 or met[0] != met[1] or met[0] == "23456":
        raise SystemExit(out + err)
    if err.count(f"MASTER_ADDR job-master-0.example is not used, since all ranks are on this host: the ranks meet at "
                 f"127.0.0.1:{met[0]}") != 1:
        raise SystemExit(err)
    with socket_at_a_port() as other_job:
        port = str(other_job.getsockname()[1])
        other_job.listen()
        err = run(2, "init", environment={"MASTER_PORT": port}, expect=10, script="rendezvous.py")[1]
        contains(err, f"MASTER_PORT {port} cannot be used", "Address already in use", "unset MASTER_PORT")
    out, err = run(2, "init", environment={"MASTER_ADDR": "localhost", "MASTER_PORT": port}, script="rendezvous.py")
    contains(out, f"met 2 ranks at localhost:{port}")
    contains(run(2, "init", environment={"MASTER_PORT": "x"}, expect=10, script="rendezvous.py")[1], "MASTER_PORT is 'x'")
    contains(run(2, "early", expect=None, script="rendezvous.py")[1],
             "mpirun does not set LOCAL_RANK", "python -m zerocore.as_deepspeed")
    out = as_deepspeed(2, str(HERE / "rendezvous.py"), "parsed")
    contains(out, "local rank 0 of 0", "local rank 1 of 1")


def configs():
    """The config in all forms, and the progress that it requests."""
    with tempfile.TemporaryDirectory() as folder:
        out, _ = run(1, folder, script="configs.py", environment={"PYTHONPATH": f"{PACKAGE}:{HERE}"})
    contains(out, "zero: step 2 | loss ", "zero: step 4 | loss ", "| rate 0.5 |", "zero: time     forward ",
             "zero: memory   parameters", "zero: the config in effect:\n", "zero: the units:\n")


def installed_package(folder):
    """Installed as pip does: Python reads zerocore.pth of a site folder."""
    subprocess.run(["cmake", "--install", str(pathlib.Path(PACKAGE).parent), "--component", "python", "--prefix", folder],
                   check=True, capture_output=True)
    pathlib.Path(folder, "sitecustomize.py").write_text(f"import site\nsite.addsitedir({str(folder)!r})\n")
    return {"PYTHONPATH": f"{folder}:{HERE}"}


def start_as_deepspeed(ranks, *arguments, timeout=300, imports=()):
    """Runs a script that imports deepspeed; returns the process that has ended. `imports`: as for run(), before the package
    installs itself."""
    environment = {**os.environ, "PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [MPIEXEC, "--oversubscribe", "-n", str(ranks), *warm.command(PYTHON, environment, *imports), "-m", "zerocore.as_deepspeed",
         *arguments], capture_output=True, text=True, timeout=timeout, env=environment)


def as_deepspeed(ranks, *arguments, imports=()):
    """Runs a script that imports deepspeed; returns its output."""
    done = start_as_deepspeed(ranks, *arguments, imports=imports)
    if done.returncode:
        raise SystemExit(f"{arguments} ended with {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}")
    return done.stdout


def deepspeed_scripts():
    """DeepSpeed's tutorial, unmodified: each stage prints the same as another."""
    for dtype, stages in (("fp32", "03"), ("bf16", "12")):
        first = None
        for stage in stages:
            out = as_deepspeed(2, str(HERE / "cifar10_deepspeed.py"), "--deepspeed", "--dtype", dtype, "--stage", stage)
            losses = re.findall(r"\[\d\] loss: [\d.]+", out)
            if out.count("Finished Training") != 2 or len(losses) != 2:
                raise SystemExit(out)
            if float(losses[1].split()[-1]) > float(losses[0].split()[-1]):
                raise SystemExit(f"it does not learn: {losses}")
            first = first or losses
            if losses != first:
                raise SystemExit(f"stage {stage}, {dtype}: {losses}, not {first}")
    missing = subprocess.run(
        [PYTHON, "-W", "ignore", "-c", "import zerocore.as_deepspeed as a; a.install(); import deepspeed; "
         "deepspeed.DualPipeVModule"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": PACKAGE})
    contains(missing.stderr, "deepspeed.DualPipeVModule: zerocore.as_deepspeed refuses this name",
             "names the schedule")


def equal_at_stages(script, stages, pattern, arguments_of):
    """Runs a script at some stages, with arguments_of(stage, folder); returns the lines that all runs share."""
    first = None
    for stage in stages:
        with tempfile.TemporaryDirectory() as folder:
            out = as_deepspeed(2, str(HERE / script), *arguments_of(stage, pathlib.Path(folder)), imports=TRAINER)
            lines = re.findall(pattern, out)
            if "Finished Training" not in out or not lines:
                raise SystemExit(out)
            first = first or lines
            if lines != first:
                raise SystemExit(f"{script} at stage {stage}: {lines}, not {first}")
            yield pathlib.Path(folder), lines


def deepspeed_tutorials():
    """Hand-written loops around models of transformers: stages are equal, checkpoints and saved models too."""
    if lacks("transformers"):
        return

    def bert(stage, folder):
        config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
                  "optimizer": {"type": "Adam", "params": {"lr": 3e-3, "betas": [0.9, 0.98]}},
                  "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 8, "warmup_num_steps": 2}},
                  "zero_optimization": {"stage": stage, "offload_optimizer": {"device": "cpu"}}}
        (folder / "ds_config.json").write_text(json.dumps(config))
        return ["--deepspeed", "--deepspeed_config", str(folder / "ds_config.json"), "--checkpoint_dir",
                str(folder / "checkpoints")]

    (_, lines), = equal_at_stages("bert_deepspeed.py", (0,), r"step .*", bert)
    with tempfile.TemporaryDirectory() as folder:
        first = as_deepspeed(2, str(HERE / "bert_deepspeed.py"), *bert(3, pathlib.Path(folder)), "--num_iterations", "5",
                             imports=TRAINER)
        resumed = as_deepspeed(2, str(HERE / "bert_deepspeed.py"), *bert(1, pathlib.Path(folder)), "--load_checkpoint",
                               imports=TRAINER)
        if re.findall(r"step .*", first) + re.findall(r"step .*", resumed) != lines:
            raise SystemExit(f"the resumed run differs: {first}{resumed}, not {lines}")

    def causal(stage, folder):
        return ["--zero_stage", str(stage), "--output_dir", str(folder), "--gradient_checkpointing"]

    weights = None
    for folder, lines in equal_at_stages("causal_deepspeed.py", (2, 3), r"epoch .*", causal):
        saved = subprocess.run(
            [PYTHON, "-c", "import sys, torch, hashlib\n"
             "whole, model = (torch.load(sys.argv[1] + name) for name in ('/whole.bin', '/pytorch_model.bin'))\n"
             "assert whole.keys() == model.keys() and all(torch.equal(whole[k], model[k]) for k in whole)\n"
             "print(sum(v.double().sum() for v in model.values()).item())", str(folder)], capture_output=True, text=True)
        weights = weights or saved.stdout
        if saved.returncode or saved.stdout != weights:
            raise SystemExit(f"the saved models differ: {saved.stdout}{saved.stderr}, not {weights}")


def trainer():
    """Hugging Face's Trainer: stages are equal, and a resumed run ends bitwise identical to one that was not
    stopped."""
    if lacks("transformers", "accelerate"):
        return
    script = str(HERE / "trainer_deepspeed.py")
    first = None
    for ranks, stage, own in ((2, "0", ()), (2, "3", ()), (1, "2", ("cosine",))):
        with tempfile.TemporaryDirectory() as folder:
            out = as_deepspeed(ranks, script, stage, folder, *own, imports=TRAINER)
            contains(out, "on_pre_optimizer_step() of Scales is called after the step")
            result = re.findall(r"result \[.*\] [\d.]+", out)
            model = pathlib.Path(folder, "model/model.safetensors").read_bytes()
            if len(result) != 1:
                raise SystemExit(out)
            first = first or (result, model)
            if not own and (result, model) != first:
                raise SystemExit(f"stage {stage}: {result}, not {first[0]}, or another model")
            if stage != "3" and not own:
                continue
            shutil.rmtree(f"{folder}/checkpoint-8")
            shutil.rmtree(f"{folder}/model")
            as_deepspeed(ranks, script, stage, folder, "resume", *own, imports=TRAINER)
            if pathlib.Path(folder, "model/model.safetensors").read_bytes() != model:
                raise SystemExit("the resumed run ended with another model")


def accelerate():
    """A loop with accelerate and a scheduler that the engine does not get: the rates of plain torch."""
    if lacks("transformers", "accelerate"):
        return
    for stage in ("1", "3"):
        contains(as_deepspeed(1, str(HERE / "accelerate_deepspeed.py"), stage), "Finished Training")
    contains(as_deepspeed(2, str(HERE / "accelerate_failed.py"), "3"), "freed after a failure")


def plugin():
    """Accelerate's plugin without a loader: each stage has the same losses."""
    if lacks("transformers", "accelerate"):
        return
    with tempfile.TemporaryDirectory() as folder:
        lines = {re.search("losses.*", as_deepspeed(2, str(HERE / "plugin_deepspeed.py"), stage, folder)).group()
                 for stage in ("1", "3")}
    if len(lines) != 1:
        raise SystemExit("\n".join(lines))


def lightning():
    """Lightning's DeepSpeedStrategy, on CPU ranks too, for its Trainer and Fabric."""
    if lacks("lightning"):
        return
    with tempfile.TemporaryDirectory() as folder:
        out = as_deepspeed(2, str(HERE / "lightning_deepspeed.py"), folder, "0", "1", "2", "3")
        if out.count("Finished Training") != 2:
            raise SystemExit(out)


def names():
    """docs/deepspeed-names.md matches the package."""
    contains(as_deepspeed(1, str(HERE / "deepspeed_names.py"), "--check"), "the page is that of the package")
    contains(as_deepspeed(1, str(HERE / "names_deepspeed.py")), "every name")
    with tempfile.TemporaryDirectory() as folder:
        contains(as_deepspeed(2, str(HERE / "calls_deepspeed.py"), folder), "every call")


def schedules():
    """DeepSpeed's schedules as objects have the rates of DeepSpeed's own, under the engine and after a resume too."""
    with tempfile.TemporaryDirectory() as folder:
        out = as_deepspeed(2, str(HERE / "schedules_deepspeed.py"), str(HERE.parents[1] / "data/schedule_goldens.json"), folder)
        contains(out, "every schedule")


def untouched():
    for ranks in (1, 2):
        run(ranks, script="untouched.py")


def notices():
    """Each is printed once, by rank 0; a warning of Python's comes on each rank."""
    of_accelerate = {"clipping", "no_engine"}
    runs = [[case for case in NOTICES if case not in of_accelerate] + ["divided_right"]]
    if has("accelerate"):
        runs += [[case] for case in sorted(of_accelerate)]  # its state is the process's
    for cases in runs:
        with tempfile.TemporaryDirectory() as folder:
            out = as_deepspeed(2, str(HERE / "notices.py"), folder, *cases)
        for case in set(cases) & set(NOTICES):
            if out.count(NOTICES[case]) != (2 if case in ("groups_alone", "hooks_of_all") else 1):
                raise SystemExit(f"{case}: {out.count(NOTICES[case])} times \"{NOTICES[case]}\" in:\n{out}")


def config_file():
    """The effect of `accelerate launch --config_file`, with FSDP's keys too, and errors that name the keys of the
    file."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "fsdp.yaml")
        path.write_text("distributed_type: FSDP\nmixed_precision: bf16\nfsdp_config:\n  fsdp_version: 2\n"
                        "  fsdp_reshard_after_forward: true\n")
        script = pathlib.Path(folder, "script.py")
        script.write_text("import os\nprint(sorted((k, v) for k, v in os.environ.items() if k.startswith('ACCELERATE')))\n")
        contains(as_deepspeed(1, "--config_file", str(path), str(script)), "('ACCELERATE_USE_DEEPSPEED', 'true')",
                 '"stage": 3', "('ACCELERATE_MIXED_PRECISION', 'bf16')", "zero_optimization.stage 3")
        path.write_text("distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n  gradient_clipping: 0.5\n")
        contains(as_deepspeed(1, f"--config_file={path}", str(script)), "('ACCELERATE_DEEPSPEED_ZERO_STAGE', '2')",
                 "('ACCELERATE_GRADIENT_CLIPPING', '0.5')")
        path.write_text("distributed_type: FSDP\nfsdp_config:\n  fsdp_versoin: 2\n")
        for arguments, part in ((("--config_file", str(path)), "fsdp_versoin"),
                                (("--config_file", str(path) + "x"), "there is no such file")):
            done = subprocess.run([PYTHON, "-W", "ignore", "-m", "zerocore.as_deepspeed", *arguments, str(script)],
                                  capture_output=True, text=True, env={**os.environ, "PYTHONPATH": PACKAGE})
            if done.returncode != 10:
                raise SystemExit(f"{arguments} ended with {done.returncode}: {done.stderr}")
            contains(done.stderr, part)
        if has("accelerate"):
            fsdp_in_a_script(pathlib.Path(folder))


def fsdp_in_a_script(folder):
    """FSDP's plugin becomes a stage; settings that accelerate would drop silently are errors. Its order of calls trains."""
    for count in (1, 2):
        contains(as_deepspeed(count, str(HERE / "accelerate_fsdp.py"), str(folder / f"of_{count}")), "Finished Training")
    folder.joinpath("plugin.py").write_text("""import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
# Rank 0 would load weights and send them to the others, on GPUs.
FullyShardedDataParallelPlugin(fsdp_version=1, cpu_ram_efficient_loading=True, sync_module_states=True)
plugin = FullyShardedDataParallelPlugin(fsdp_version=2, reshard_after_forward=False)
accelerator = Accelerator(fsdp_plugin=plugin, gradient_accumulation_steps=3)
config = accelerator.state.deepspeed_plugin.deepspeed_config
print(config["zero_core"], [config[key] for key in ("train_batch_size", "gradient_accumulation_steps", "gradient_clipping")])
net = torch.nn.Linear(2, 1)
net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))  # without a loader
for _ in range(3):
    with accelerator.accumulate(net):
        accelerator.backward(net(torch.ones(2, 2)).sum())
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(net.parameters(), 0.01)
        optimizer.step()
accelerator.backward(net(torch.ones(2, 2)).sum())
try:
    accelerator.clip_grad_norm_(net.weight, 0.01)
except Exception as error:
    print(error)
print("prepared", net.gradient_accumulation_steps(), net.global_steps, round(net.get_global_grad_norm(), 3))
""")
    contains(as_deepspeed(1, str(folder / "plugin.py")), "{'reshard_after_forward': False} [3, 3, 0.0]",
             "prepared 3 1 3.464",
             "1 trained parameters are left out, bias among them")
    folder.joinpath("cpu.py").write_text("from accelerate import Accelerator, DeepSpeedPlugin\n"
                                         "Accelerator(cpu=True, deepspeed_plugin=DeepSpeedPlugin(zero_stage=2))\n")
    done = subprocess.run([PYTHON, "-W", "ignore", "-m", "zerocore.as_deepspeed", str(folder / "cpu.py")],
                          capture_output=True, text=True, env={**os.environ, "PYTHONPATH": PACKAGE})
    contains(done.stderr, "accelerate leaves DeepSpeed out, with cpu=True")


def example():
    """examples/trainer, as docs/getting-started.md starts it: the wheel is installed, and the variable is set."""
    if lacks("transformers", "accelerate"):
        return
    with tempfile.TemporaryDirectory() as folder:
        package = {**installed_package(folder), "ZEROCORE_AS_DEEPSPEED": "1", "OMP_NUM_THREADS": "1"}

        def run_example(script, *arguments):
            done = subprocess.run(
                [PYTHON, "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node", "2",
                 str(HERE.parents[2] / "examples" / script), *arguments],
                cwd=folder, capture_output=True, text=True, timeout=500, env={**os.environ, **package})
            if done.returncode:
                raise SystemExit(done.stdout + done.stderr)
            return done.stdout

        cases = [((), 0.8, "model")] + ([(("lora",), 0.95, "adapter_model")] if has("peft") else [])
        for arguments, least, saved in cases:
            out = run_example("trainer/train.py", *arguments)
            losses = re.search(r"^loss (\S+) at step 10, (\S+) at step 60", out, re.MULTILINE)
            if not losses or not float(losses[2]) < least * float(losses[1]):
                raise SystemExit(out)
            if not os.path.exists(f"{folder}/trained/{saved}.safetensors"):
                raise SystemExit(f"the {saved} is missing")
        losses = [re.findall(r"^step .*", run_example("minute/ddp_to_stage3.py", way), re.MULTILINE) for way in ("ddp", "stage3")]
        if losses[0] != losses[1] or len(losses[0]) != 4:
            raise SystemExit(str(losses))


if __name__ == "__main__":
    globals()[sys.argv[4]]()
