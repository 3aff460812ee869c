"""Cases with terms and settings drawn by random_settings: each command of a case trains with another setting of
them."""

import functools
import json
import pathlib
import random
import subprocess
import tempfile
import threading

from campaign_case import LIMIT_S, STEPS, Case, Programs, Reference, arguments, launch, saving

RANKS = 4  # of a job, at most
# For the toy model alone, or decided by the number of samples.
LEFT_OUT = ("zero_core.param_groups", "train_micro_batch_size_per_gpu", "zero_core.time_limit_seconds")
CASES_OF_A_DRAW = 8  # per class
PIECES = ("reduce_bucket_size", "allgather_bucket_size")


class DrawnPrograms(Programs):
    def __init__(self, mpiexec, train_gpt, zero, random_settings):
        super().__init__(mpiexec, train_gpt, zero, random_settings)
        self.random_settings = launch.absolute([random_settings])[0]
        self.drawn, self.making, self.kept = {}, threading.Lock(), tempfile.TemporaryDirectory()

    def draw(self, seed, number):
        """Returns terms and settings with few enough ranks: the first such draw from this number on."""
        for other in range(number * 1000, number * 1000 + 1000):
            printed = subprocess.run([self.random_settings, "--seed", str(seed), "--draw", str(other), "--print", "json"],
                                     stdout=subprocess.PIPE, text=True, check=True).stdout
            draw = json.loads(printed)
            if not draw["any"] and draw["ranks"] <= RANKS:
                return draw
        raise launch.Failed("no draw of so few ranks")

    def reference_of(self, draw):
        """Returns the undisturbed run of a draw, made once."""
        with self.making:
            name = json.dumps(draw)
            if name not in self.drawn:
                self.drawn[name] = Reference(self, draw["ranks"], options_of(draw, draw["settings"][0], ".")[0], None)
            return self.drawn[name]

    @functools.cached_property
    def files(self):
        """Returns a folder with files like a user's: a config, a checkpoint `c`, the reports of a plan."""
        folder = pathlib.Path(self.kept.name)
        (folder / "config.json").write_text(json.dumps({
            "train_batch_size": 12, "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "betas": [0.9, 0.95]}},
            "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}, "bf16": {"enabled": False},
            "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 3}}, "gradient_clipping": 1.0}, indent=1))
        small = [self.train_gpt, "--model", "tiny", "--sequence-length", "8", "--threads", "1"]
        plan = [self.zero, "plan", "--model", "tiny", "--ranks", "2", "--device", "cpu", "--rows", "0,3", "--report", "report"]
        for command in ([*small, "--steps", "2", "--checkpoint", "c", "--save-every", "1"], plan):
            job = launch.Job(command, folder)
            if job.finish(LIMIT_S) != 0:
                raise launch.Failed("a run that nobody disturbed failed\n" + job.text())
        return folder


def options_of(draw, setting, folder):
    """Returns the arguments of train_gpt, and its environment."""
    keys = {**draw["terms"], **setting["keys"], "train_batch_size": 2 * draw["ranks"] * draw["accumulation"]}
    keys = {key: folder if key.endswith("nvme_path") else value for key, value in keys.items()
            if not key.startswith(LEFT_OUT)}
    # Larger, since train_gpt's models are larger than those for which the sizes were drawn.
    keys |= {key: 100 * int(value) for key, value in keys.items() if key.endswith(PIECES)}
    environment = {"ZERO_EXECUTOR": setting["executor"], "ZERO_STRICT": str(int(setting["strict"]))}
    return launch.settings(keys), environment


class DrawnCase(Case):
    """A case's name ends with its number; the number determines the draw."""

    def __init__(self, programs, folder, random_name):
        self.seed, self.number = random_name.split()[0], int(random_name.split()[-1])
        super().__init__(programs, folder, random_name)

    def choose_reference(self):
        """Several cases share a reference, since it takes longer than a case."""
        self.choose_draw(self.number // CASES_OF_A_DRAW)

    def choose_draw(self, number):
        self.draw = self.programs.draw(random.Random(self.seed).randrange(1000), number)
        self.ranks = self.draw["ranks"]

    @functools.cached_property
    def reference(self):
        return self.programs.reference_of(self.draw)

    def command(self, more=(), wrapper=(), stage=None, checkpoint=True, steps=STEPS):
        """Uses another setting in each call, and ignores the stage."""
        self.logs.append(self.folder / f"log{len(self.logs)}.json")
        setting = self.random.choice(self.draw["settings"] + self.draw["resuming"])
        options, environment = options_of(self.draw, setting, self.folder)
        self.note(" ".join(options) + str(environment))
        more = [*(saving(self.folder) if checkpoint else []), *options, *more]
        return ["env", *(f"{name}={value}" for name, value in environment.items()), *wrapper, self.programs.train_gpt,
                *arguments(self.logs[-1], steps, None, more)]
