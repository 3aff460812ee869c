"""Typing errors in arguments of `zero` and train_gpt: numbers out of range, empty values, files that do not exist.

usage: arguments_test.py ZERO TRAIN_GPT
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ZERO, TRAIN_GPT = sys.argv[1:3]
COMMANDS = [[], ["run"], ["plan"], ["tune"], ["doctor"], ["calibrate"], ["config"], ["config", "check"], ["config", "explain"],
            ["config", "new"], ["checkpoint"], ["checkpoint", "inspect"], ["checkpoint", "verify"], ["checkpoint", "export"], ["checkpoint", "diff"], ["compare"], ["names"]]
SMALL = ["--model", "tiny", "--sequence-length", "8", "--threads", "1"]


def call(*command, environment=None):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace", timeout=60,
                          env={**os.environ, "ZERO_STRICT": "0", **(environment or {})})


class Arguments(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def refused(self, text, *command, code=10, **keywords):
        with self.subTest(command=command[1:]):
            done = call(*command, **keywords)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(text, done.stderr)
            self.assertNotIn("json.exception", done.stderr)

    def test_every_number_has_a_range(self):
        for program, command in [(ZERO, command) for command in COMMANDS] + [(TRAIN_GPT, [])]:
            done = call(program, *command, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertNotRegex(done.stdout, r"\b(INT|UINT|FLOAT)\b", f"{command}: an option without a row of number_options.cpp")
            self.assertNotRegex(done.stdout, r"\bTEXT\b", f"{command}: an option whose value has no name in help_formatter.cpp")
            for columns in (60, 100):
                lines = call(program, *command, "--help", environment={"COLUMNS": str(columns)}).stdout.splitlines()
                # Commands of examples are not broken.
                wide = [line for line in lines if len(line) > columns and not re.match(r"  (zero|train_gpt|mpirun) ", line)]
                self.assertFalse(wide, command)
            for option in re.findall(r"(?m)^ +(?:-\w, *)?(--[a-z-]+) (?:N|SIZE)\b", done.stdout):
                for value in ("nan", "inf", "-1", "99999999999999999999"):
                    self.refused(f"{option} {value}: expected a", program, *command, *self.needed(command), f"{option}={value}")

    def test_long_helps_have_groups(self):
        for program, *command in ((TRAIN_GPT,), (ZERO, "plan"), (ZERO, "run"), (ZERO, "tune"), (ZERO, "config", "check"),
                                  (ZERO, "config", "explain")):
            shown = call(program, *command, "--help").stdout
            with self.subTest(command=command):
                self.assertLessEqual(set(re.findall(r"(?m)^  .*?(--[a-z-]+)", re.search(r"(?ms)^Options:$(.*?)^$", shown)[1])),
                                     {"--help", "--version"})
                self.assertGreaterEqual(len(re.findall(r"(?m)^[A-Z][\w ]+:$", shown)), 4, shown)

    def test_examples_of_the_help_run(self):
        """Those that need no job and no checkpoint."""
        (self.folder / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}')
        tried = 0
        for command in COMMANDS:
            for example in re.findall(r"(?m)^  (zero (?:plan|config|names) .*)", call(ZERO, *command, "--help").stdout):
                tried += 1
                with self.subTest(example=example):
                    done = subprocess.run(example.replace("zero", str(ZERO), 1), shell=True, cwd=self.folder, capture_output=True,
                                          text=True, timeout=60)
                    self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreaterEqual(tried, 10)

    def needed(self, command):
        """Returns arguments without which the command would be refused because they are missing."""
        return {"check": ["none.json"], "explain": ["none.json"], "export": ["none", "out"]}.get(command[-1] if command else "", [])

    def test_numbers_of_train_gpt(self):
        for option, value, rest in (("--seed", "-1", "whole number from 0 to 18446744073709551615"),
                                    ("--seed", "18446744073709551616", "whole number from 0 to 18446744073709551615"),
                                    ("--threads", "100000", "whole number from 0 to 1024"),
                                    ("--start-limit", "0", "number from 0.001 to 1000000000 of seconds"),
                                    ("--max-shard-size", "-5", "size with its unit, from 1 B to 1 PiB, such as 24GiB")):
            self.refused(f"{option} {value}: expected a {rest}", TRAIN_GPT, *SMALL, option, value)
        self.refused("--checkpoint: is empty; expected a value", TRAIN_GPT, *SMALL, "--checkpoint", "")

    def test_a_first_try_prints_ten_lines(self):
        lines = call(TRAIN_GPT, *SMALL).stdout.splitlines()
        self.assertEqual(len(lines), 10, lines)
        self.assertRegex(lines[-1], r"^last 10 steps: loss .* above the floor of ")
        self.assertIn("planned", call(TRAIN_GPT, *SMALL, "--steps", "1", "--set", "gradient_clipping=1").stdout)

    def test_what_cannot_be_printed_is_an_error(self):
        config = self.folder / "ds.json"
        config.write_text('{"train_batch_size": 8}')
        for command in ((ZERO, "--help"), (ZERO, "--version"), (ZERO, "config", "new"), (ZERO, "config", "check", config),
                        (ZERO, "config", "explain", config), (ZERO, "config", "explain", "seed"), (ZERO, "doctor", "--json"),
                        (ZERO, "plan", "--model", "tiny", "--json", "-"), (ZERO, "plan", "--model", "tiny", "--rows", "0"),
                        (ZERO, "run", "-n", "1", "--dry-run", "true"), (TRAIN_GPT, "--help"), (TRAIN_GPT, *SMALL, "--steps", "1")):
            with self.subTest(command=command[1:]), open("/dev/full", "wb") as full:
                done = subprocess.run([str(word) for word in command], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertEqual(done.returncode, 14, done.stderr)
                self.assertIn("standard output could not be written: No space left on device", done.stderr)

    def test_outputs_of_train_gpt_are_tried_before_the_first_step(self):
        # No process may make files there.
        for option, text in (("--save-model", "--save-model /proc cannot be written to: "), ("--log-json", "--log-json /proc"),
                             ("--trace", "zero_core.trace /proc cannot be written: it is a directory"),
                             ("--report", "--report /proc cannot be written to: ")):
            more = ("--compare-stages", "0,1") if option == "--report" else ()
            self.refused(text, TRAIN_GPT, *SMALL, "--steps", "1", *more, option, "/proc")
        self.refused("No such file or directory", TRAIN_GPT, *SMALL, "--steps", "1", "--trace", self.folder / "none" / "t.json")

    def test_words_of_mpirun_before_the_program(self):
        script = self.folder / "train.py"
        script.write_text("")
        hosts = self.folder / "hosts"
        hosts.write_text("localhost slots=2\n")
        for words in (("-n", "2", "--", "true"), ("-np", "2", "true"), ("-np", "2", "--", "true", "--", "-np"),
                      ("-hostfile", hosts, "-n", "2", "true")):
            done = call(ZERO, "run", "--dry-run", *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r" -n 2 .*true( -- -np)?\n")
        self.assertIn("true -- -np", call(ZERO, "run", "--dry-run", "-np", "2", "--", "true", "--", "-np").stdout)
        alone = shutil.copy(ZERO, self.folder / "zero")  # as in a wheel
        self.refused("program train_gpt is not in PATH; it is in a build of the sources, not in the wheel",
                     alone, "run", "-n", "1", "train_gpt", environment={"PATH": "/usr/bin:/bin"})
        for words in ((script,), ("-n", "2", script)):
            self.refused(f"python {script}", ZERO, "run", *words)
        self.refused("--device-memory 24: expected a size with its unit, from 1 MiB to 1 PiB, such as 24GiB", ZERO, "plan", "--model", "gpt2", "--device-memory", "24")

    def test_a_typing_error_names_the_nearest(self):
        self.assertEqual(call(ZERO).returncode, 10)
        listed = call(ZERO, "help").stdout
        self.assertEqual(call(ZERO).stderr, listed)
        for group in ("Before a run:", "A run:", "After a run:"):
            self.assertIn(group, listed)
        self.assertEqual(call(ZERO, "help", "config", "new").stdout, call(ZERO, "config", "new", "--help").stdout)
        for text, *words in (("unknown command plann; did you mean \"plan\"?", ZERO, "plann"),
                             ("unknown command hlep; did you mean \"help\"?", ZERO, "hlep"),
                             ("unknown option --modell; did you mean \"--model\"?", ZERO, "plan", "--modell", "gpt2"),
                             ("unknown option --rnaks; did you mean \"--ranks\"?", ZERO, "run", "--rnaks=2", "true"),
                             ("unknown option --jsno; did you mean \"--json\"?", ZERO, "tune", "--jsno", "true"),
                             ("unknown option --zzz; zero doctor --help lists the options", ZERO, "doctor", "--zzz"),
                             ("FILE is required; see zero config check --help", ZERO, "config", "check"),
                             ("zero: --layers needs a value; see zero plan --help", ZERO, "plan", "--params", "7B", "--layers"),
                             ("--model needs a value; see train_gpt --help", TRAIN_GPT, "--model"),
                             ("--ranks is given more than once, and takes one value; see zero plan --help",
                              ZERO, "plan", "--model", "tiny", "--ranks", "2", "--ranks", "4"),
                             ("--steps is given more than once, and takes one value", TRAIN_GPT, "--steps", "1", "--steps", "1"),
                             ("-n is missing: the number of ranks, before the program", ZERO, "run", TRAIN_GPT, "-n", "2"),
                             ("unexpected argument gpt2; did you mean --model gpt2?", ZERO, "plan", "gpt2"),
                             ("unexpected argument gpt2; did you mean --model gpt2?", TRAIN_GPT, "gpt2"),
                             ("unexpected argument gpt2 behind --ranks 2, which is one value; did you mean --model gpt2?",
                              ZERO, "plan", "--ranks", "2", "gpt2"),
                             ("unexpected argument memory; zero plan --help lists the options", ZERO, "plan", "memory"),
                             ("unexpected argument gpt2 behind --model tiny, which is one value; zero plan --help lists",
                              ZERO, "plan", "--model", "tiny", "gpt2"),
                             *((f"zero: {typed[0]} four: expected a whole number", ZERO, "run", *typed, "true")
                               for typed in (("-n", "four"), ("-np", "four"), ("--ranks", "four"), ("-n", "four", "true", "--ranks"))),
                             ("zero: --ranks four: expected a whole number", ZERO, "run", "--ranks=four", "true", "-n", "2"),
                             ("zero: -n is given more than once", ZERO, "run", "-n", "2", "-n", "3", "true"),
                             ("zero: -n needs a value, and is followed by the option --verbose", ZERO, "run", "-n", "--verbose", "true"),
                             ("unknown option --stepz; did you mean \"--steps\"?", TRAIN_GPT, "--stepz=3"),
                             ("unknown option --verison; did you mean \"--version\"?", ZERO, "--verison"),
                             ("a command is missing: one of inspect, verify, export, diff; see zero checkpoint --help",
                              ZERO, "checkpoint"),
                             ("unknown option --model: it comes after the command: zero plan --model", ZERO, "--model", "gpt2", "plan"),
                             ("did you mean \"zero plan --model\"?", ZERO, "--model", "gpt2"),
                             ("unknown option --nproc-per-node; did you mean --ranks, of all hosts?",
                              ZERO, "run", "--nproc-per-node", "2", "true"),
                             ("unknown option -n; ranks are started by zero run -n N train_gpt", TRAIN_GPT, "-n", "2"),
                             ("unknown option --lr; did you mean --set optimizer.params.lr=VALUE?", TRAIN_GPT, "--lr", "1e-3"),
                             ("unknown option --bf16; did you mean --set bf16.enabled=VALUE?", ZERO, "plan", "--bf16"),
                             ("2 is no program; the number of ranks is -n 2", ZERO, "run", "2", "true"),
                             ("unknown option --steps; options of the program come after the program",
                              ZERO, "run", "-n", "2", "--steps", "3", "true"),
                             ("option and value are two words: --model gpt2", ZERO, "plan", "--model gpt2"),
                             ("which begins with a typographic dash: type --model", ZERO, "plan", "\u2014model", "gpt2"),
                             ("did you mean \"zero --version\"?", ZERO, "version"),
                             ("did you mean \"zero config check c.json\"?", ZERO, "config", "c.json"),
                             ("expected a key alone, such as zero_optimization.stage", ZERO, "config", "explain", "zero_optimization.stage=3"),
                             ("unexpected true, since --bf16 takes no value", ZERO, "config", "new", "--bf16", "true"),
                             ("--total-tokens 20: too few tokens for a run; give a unit, such as 100B",
                              ZERO, "plan", "--params", "7B", "--total-tokens", "20", "--price", "2"),
                             ("unknown command verify; did you mean \"zero checkpoint verify\"?", ZERO, "verify", "c"),
                             ("--resume needs a value, and is followed by the option --steps; see train_gpt --help",
                              TRAIN_GPT, "--resume", "--steps", "1"),
                             ("--restarts needs a value, and is followed by the option -n", ZERO, "run", "--restarts", "-n", "2", "x"),
                             ("unknown option --config; did you mean \"--deepspeed", TRAIN_GPT, "--config", "c.json"),
                             ("unexpected argument c.json; did you mean --deepspeed_config c.json?", TRAIN_GPT, "c.json"),
                             ("train.py is a script, which Python runs: python train.py (there is no such file here)",
                              ZERO, "run", "-n", "1", "train.py"),
                             ("program trian_gpt is not in PATH; did you mean \"train_gpt\"?", ZERO, "run", "-n", "1", "trian_gpt"),
                             ("--params 7: too few parameters for a model; give a unit", ZERO, "plan", "--params", "7"),
                             ("unexpected argument 7Bx32; did you mean --params 7Bx32?", ZERO, "plan", "7Bx32"),
                             ("--params 7BX: the number of layers is missing", ZERO, "plan", "--params", "7BX"),
                             ("--compare-stages 0 1 2: commas separate the items of a list: --compare-stages 0,1,2",
                              TRAIN_GPT, "--compare_stages", "0", "1", "2", "--steps", "1"),
                             ("--rows 0, 3+cpu: commas separate the items of a list: --rows 0,3+cpu",
                              ZERO, "plan", "--model", "gpt2", "--rows", "0,", "3+cpu"),
                             ("--rows 0 1 2: commas separate the items of a list: --rows 0,1,2",
                              ZERO, "tune", "-n", "2", "--rows", "0", "1", "2", TRAIN_GPT),
                             ("nor a file; did you mean \"gpt2\"?", TRAIN_GPT, "--model", "gtp2"),
                             ("unexpected argument 2 behind --ranks 1, which is one value; zero plan --help lists",
                              ZERO, "plan", "--ranks", "1", "2", "--model", "gpt2"),
                             ("unexpected argument fp16.enabled=1 behind --set seed=1, which is one value: write --set fp16",
                              ZERO, "plan", "--model", "gpt2", "--set", "seed=1", "fp16.enabled=1"),
                             ("--sequence-length 2048 is beyond the model's context of 1024, the rows of its table of "
                              "positions: give at most 1024", ZERO, "plan", "--model", "gpt2", "--sequence-length", "2048"),
                             ("--sequence-length 300 is beyond the model's context of 256: give at most 256, or a config.json",
                              TRAIN_GPT, "--model", "llama-tiny", "--sequence-length", "300"),
                             ("the number of layers is missing behind the x", ZERO, "plan", "--params", "7Bx")):
            self.refused(text, *words)

    def test_each_command_has_two_examples_with_options_of_its_own(self):
        for command in [words for words in COMMANDS if words and words not in (["config"], ["checkpoint"])]:
            shown = call(ZERO, *command, "--help").stdout
            options, lines = shown.split("Examples:\n")
            lines = lines.split("\n\n")[0].splitlines()
            self.assertEqual(len(lines), 2, command)
            for line in lines:
                self.assertTrue(line.startswith("  zero " + " ".join(command)), line)
                own = re.split(r" train_gpt | python ", line)[0]
                for option in re.findall(r" (--[\w-]+|-\w)\b", own):
                    self.assertRegex(options, rf"(?m)^ +(\S+,)?{option}[, ]", line)

    def test_a_name_of_deepspeed_is_there_or_not(self):
        shown = call(ZERO, "names", "FusedAdam").stdout.splitlines()
        self.assertIn(["deepspeed.ops.adam.FusedAdam", "there"], [line.split("  ")[:1] + line.split()[-1:] for line in shown])
        self.assertRegex(call(ZERO, "names", "deepspeed.moe").stdout, r"(?m)^deepspeed\.moe +refused: experts are trained")
        self.assertRegex(call(ZERO, "names", "comm.backend").stdout, "(?m)^deepspeed.*missing$")
        many = call(ZERO, "names", "deepspeed").stdout.splitlines()
        self.assertEqual(len(many), 41)
        self.assertRegex(many[-1], r"^and \d{4} more$")
        self.refused("DeepSpeed has no name with FusdAdam; did you mean \"FusedAdam\"?", ZERO, "names", "FusdAdam")

    def test_a_shell_completes_commands_and_options(self):
        script = ('source <("$1" completion "$2"); shift 2; COMP_WORDS=(zero "$@"); COMP_CWORD=$#; _zero; echo "${COMPREPLY[*]}"')
        for typed, expected in ((["pl"], "plan"), (["plan", "--mo"], "--model"), (["config", "ch"], "check"),
                                (["run", "-n", "2", "--re"], "--restarts"), (["checkpoint", "ver"], "verify"), (["he"], "help"),
                                (["help", "config", "ch"], "check"), (["run", "-n", "2", TRAIN_GPT, "--prompt"], "--prompt"),
                                (["tune", "-n", "2", "no/train_gpt", "--prompt"], "")):
            done = call("bash", "-c", script, "bash", ZERO, "bash", *typed)
            self.assertEqual((done.stdout, done.stderr), (expected + "\n", ""), typed)
        # As bashcompinit calls it; its compgen chooses among the words only while somebody types.
        in_zsh = ('source <("$1" completion zsh); shift; run() { emulate -L sh; setopt kshglob noshglob braceexpand; '
                  'local -a COMP_WORDS COMPREPLY; COMP_WORDS=(zero "$@"); COMP_CWORD=$#; _zero; echo "${COMPREPLY[*]}"; }; run "$@"')
        direct = 'source <("$1" completion bash); COMP_WORDS=("$2" --prompt); COMP_CWORD=1; _train_gpt; echo "${COMPREPLY[*]}"'
        self.assertEqual(call("bash", "-c", direct, "bash", ZERO, TRAIN_GPT).stdout, "--prompt\n")
        in_fish = '$argv[1] completion fish | source; complete -C "zero $argv[2..]"'
        path = f"{pathlib.Path(TRAIN_GPT).parent}:{os.environ['PATH']}"
        for shell, script in (("zsh", ("-f", "-c", in_zsh, "zsh")), ("fish", ("--no-config", "-c", in_fish))):
            if shutil.which(shell) is None:
                print(f"SKIPPED: there is no {shell} here")
                continue
            for typed, expected in ((["pl"], "plan"), (["plan", "--mo"], "--model"), (["config", "ch"], "check"), (["he"], "help"),
                                    (["help", "config", "ch"], "check"), (["run", "train_gpt", "--prompt"], "--prompt")):
                done = call(shell, *script, ZERO, *typed, environment={"HOME": str(self.folder), "PATH": path})
                self.assertEqual(done.stderr, "", (shell, typed))
                self.assertIn(expected, done.stdout.split(), (shell, typed))
        fish = call(ZERO, "completion", "fish").stdout
        self.assertIn("-n '__fish_seen_subcommand_from plan' -l model -r -d", fish)
        for line in fish.splitlines()[1:]:  # each is one command, with its quotes closed
            self.assertRegex(line, r"^complete -c (zero|train_gpt)( -\w( '[^']*'| [\w-]+)?)+$")

    def test_the_plan_shows_few_rows(self):
        few, every = (call(ZERO, "plan", "--model", "gpt2", *more).stdout.split("\n\n")[1].splitlines() for more in ([], ["--all"]))
        self.assertEqual([row[2:].split()[0] for row in few], ["row", "0", "1", "2", "3", "3+cpu", "and"])
        self.assertEqual(few[-1], f"  and {len(every) - len(few) + 1} more rows: --all")
        self.assertTrue(set(few[:-1]) <= set(every))

    def test_commands_and_empty_values(self):
        self.refused("unknown command checkpoint foo; expected one of inspect, verify, export, diff; see zero checkpoint --help",
                     ZERO, "checkpoint", "foo")
        self.refused("unknown command config chekc; did you mean \"check\"?; expected one of check, explain, new", ZERO, "config", "chekc")
        self.refused("DIR: is empty; expected a value", ZERO, "checkpoint", "inspect", "")
        self.refused("--tag: is empty; expected a value", ZERO, "checkpoint", "verify", "c", "--tag", "")
        self.refused("-x NO_SUCH_VARIABLE: this variable is not set here", ZERO, "run", "-n", "1", "-x", "NO_SUCH_VARIABLE", "true")

    def test_a_new_config_that_could_not_be_used(self):
        self.refused("--warmup-steps 2000: expected fewer than --total-steps 10",
                     ZERO, "config", "new", "--warmup-steps", "2000", "--total-steps", "10")
        self.refused("--lr nan: expected a number from 0", ZERO, "config", "new", "--lr", "nan")

    def test_nested_groups_are_named_as_they_have_to_be(self):
        config = self.folder / "c.json"
        config.write_text('{"train_batch_size": 8, "zero_core": {"reduce_group_size": [2, 2]}}')
        self.refused("each larger than the one before and a multiple of it", ZERO, "config", "check", config)

    def test_files_that_are_none(self):
        fifo, large = self.folder / "fifo", self.folder / "large"
        os.mkfifo(fifo)
        large.write_bytes(b"")
        os.truncate(large, 3 << 30)  # sparse
        readers = ([ZERO, "compare"], [ZERO, "config", "check"], [ZERO, "run", "-n", "1", "--dry-run", "--hostfile"])
        for reader in readers:
            tail = ["true"] if "run" in reader else []
            self.refused("not a regular file", *reader, "/dev/zero", *tail)
            self.refused("not a regular file", *reader, fifo, *tail)
            self.refused("is larger than", *reader, large, *tail)
            self.refused("cannot be read: No such file", *reader, self.folder / "none.json", *tail)
        for reader in readers[1:]:
            self.refused("is a directory", *reader, self.folder, *(["true"] if "run" in reader else []))
        broken = self.folder / "report.json"
        broken.write_text('{"format": "zero-comparison",\n"version": }')
        self.refused("is no report.json of train_gpt --report: it is not valid JSON, from line 2 on", ZERO, "compare", broken)
        broken.write_text('{"format": "zero-comparison", "version": 1}')
        self.refused("a value is missing, or of another type", ZERO, "compare", broken)
        broken.unlink()
        os.mkfifo(broken)
        self.refused("not a regular file", ZERO, "compare", self.folder)

    def test_a_file_that_is_none_is_refused_unread(self):
        large = self.folder / "report.json"
        for bytes_of_file, text in ((3 << 30, "is larger than 1024 MiB"), (900 << 20, "does not begin with {, as JSON does")):
            large.write_bytes(b"")
            os.truncate(large, bytes_of_file)  # sparse
            with subprocess.Popen([ZERO, "compare", large], stderr=subprocess.PIPE, text=True) as process:
                error = process.stderr.read()
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 10, error)
            self.assertIn(text, error)
            self.assertLess(usage.ru_maxrss, 200 << 10, "KiB")

    def test_models_that_are_none(self):
        train = [TRAIN_GPT, *SMALL[2:], "--steps", "1", "--model"]
        model = self.folder / "config.json"
        for text, problem in (('{"model_type": "gpt2",\n"n_embd": }', "is not valid JSON, from line 2 on"),
                              ('{"n_embd": 1e999}', "has a number that is too large"), ("[]", "must hold a JSON object"),
                              ('{"n_embd": "\\ud800"}', "is not valid JSON, from line 1 on")):
            model.write_text(text)
            self.refused(problem, *train, model)
        os.truncate(model, 3 << 30)  # sparse
        self.refused("is larger than 16 MiB", *train, model)
        self.refused("is a directory; the config.json in a model's folder is needed", *train, self.folder)
        self.refused("not a regular file", *train, "/dev/zero")

    def test_a_model_is_not_written_into_a_checkpoint(self):
        checkpoints = self.folder / "c"
        done = call(TRAIN_GPT, *SMALL, "--steps", "1", "--checkpoint", checkpoints)
        self.assertEqual(done.returncode, 0, done.stderr)
        for inside in (checkpoints / "step-1", checkpoints / "step-1" / "model"):
            self.refused("step-1 is a checkpoint, which later saves with --keep remove", ZERO, "checkpoint", "export",
                         checkpoints, inside)
            self.assertFalse(inside.name == "model" and inside.exists())
            self.refused("step-1 is a checkpoint", TRAIN_GPT, *SMALL, "--steps", "1", "--save-model", inside)
        self.assertEqual(call(ZERO, "checkpoint", "export", checkpoints, checkpoints / "model").returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
