// Writes docs/config.md: handwritten text, and tables from the key table.
#include <map>

#include "config_schemas/import.h"
#include "config_schemas/values.h"
#include "tests/config/generate.h"
#include "tools/zero/differences.h"

namespace zero::tests {
namespace {

using namespace config_schemas;
using namespace tool;

constexpr const char* introduction = R"(# Configuration

<!-- Made from the key table in config_schemas/: change that, then run
     ZERO_UPDATE_GENERATED=1 build/release/bin/config_test -->

ZeroCore reads the JSON file that DeepSpeed reads, unchanged. Every key is one of these; none is ever
ignored in silence:

| | what happens |
|---|---|
| honoured | it acts as in DeepSpeed, or as the table says |
| no effect here | it is checked, and listed once at start with the reason, unless its value asks for what is done anyway |
| refused | the file is refused with the reason where the value asks for something; a value that asks for nothing (`false`, `"none"`, the default) is fine |
| old name | it is read as the key that replaced it, with a notice; giving both is refused |
| unknown, in a section where DeepSpeed refuses unknown keys | refused, with the nearest known key if one is near |
| unknown elsewhere | a notice, as DeepSpeed passes over it; refused where it looks like a slip of a known key, and where it is a known key at a wrong place that would act at its own |

DeepSpeed refuses unknown keys in `zero_optimization`, `fp16`, `bf16`, `compile`, `comms_logger`,
`timers.throughput`, `tensor_parallel`, the monitors, `optimizer.params` and `scheduler.params`. `zero_core` is such a
section too.

`zero config check FILE` says what would happen. It makes the engine's own plan too, for the `--world-size`,
`--device` and `--model` that are given, and refuses what every such run would refuse; where no device is given,
what GPU ranks or CPU ranks alone would refuse is a notice. `zero config explain FILE` shows every resolved value and
where it came from, `zero config explain KEY` what a key is. `zero config new` writes a file to start from, in plain
JSON. Editors complete and check keys by `config_schemas/ds_config.schema.json`: name it as `"$schema"` in the file,
or in the editor's settings.

## The file

* Hjson, as DeepSpeed reads it: JSON; comments (`#`, `//`, `/* */`); commas that are missing or stand before a
  closing bracket; keys and strings without quotes (such a string goes on to the end of its line). Names that
  start with `_` are comments too. Strings of several lines (`'''`) are not read.
* A key given twice is refused, at any depth. At most 1 MiB, 32 levels, 10,000 keys.
* YAML, if the name ends in `.yaml` or `.yml`, or has no ending that says JSON and the text does not begin with a
  bracket. Its plain values mean what they mean in YAML 1.1: `no` is false, `500_000_000` a number. No aliases.
* Integers may be written `5e8` or `16.0`. Numbers may be strings, as loaders of YAML make one of `1e-5`; in the
  sections where DeepSpeed refuses unknown keys truth values may too. A notice names them. Rates and momenta of
  schedules may be lists of one; a list of rates by group is refused, as groups take shares of one schedule.
* Every number has a range; one outside of it is refused. A key that DeepSpeed takes unread and that has no effect
  here may have a value of any type.
* All problems come in one message, each with line, column, path and what is allowed.
* Command-line overrides go by path (`--set zero_optimization.stage=3`) and pass the same checks.

## "auto"

Hugging Face's Trainer and Accelerate replace `"auto"` before DeepSpeed sees it. Here the training program's
values stand for it (`zero::TrainerValues`), and the Trainer's defaults where the program says nothing.

| key | value |
|---|---|
| `train_micro_batch_size_per_gpu` | the program's; else 1, with a notice, as where a file names no batch at all |
| `gradient_accumulation_steps` | the program's; else what the batch sizes leave, or 1; with `zero_core.rank_independent` what the ranks leave |
| `train_batch_size` | follows from the other two |
| `gradient_clipping` | 1.0 |
| `optimizer.params.lr`, `betas`, `eps`, `weight_decay` | 5e-5, [0.9, 0.999], 1e-8, 0 |
| `scheduler.params.warmup_min_lr`, `warmup_max_lr` | 0, the optimizer's `lr` |
| `scheduler.params.warmup_num_steps` | the program's; else 1, the shortest |
| `scheduler.params.total_num_steps` | the program's number of steps; where it says none, a run is refused, and `zero config` leaves it open |
| `fp16.enabled`, `bf16.enabled` | the program's choice; else false |
| `zero_optimization.reduce_bucket_size` | hidden size squared, where the program says the hidden size |
| `zero_optimization.stage3_prefetch_bucket_size` | 0.9 times that |
| `zero_optimization.stage3_param_persistence_threshold` | 10 times the hidden size |
| other keys of sections where DeepSpeed refuses unknown ones, `steps_per_print` | the default, as if the key were absent |
| other keys without effect here | nothing |
| anything else | refused |

## Releases of DeepSpeed

Defaults are those of DeepSpeed 0.19. `"zero_core": {"deepspeed_defaults": "0.14"}` takes those of 0.14 for
what the file leaves out: `gradient_clipping` 0 instead of 1.0, and `warmup_max_lr` 0.001 in WarmupLR instead
of the optimizer's rate. Blocks that DeepSpeed has removed by now are refused where they are switched on, and
listed where they are off, although DeepSpeed 0.19 refuses their mere presence.

)";

std::string cell(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

std::string status_of(const Key& key) {
  switch (key.status) {
    case Status::no_effect:
      return "no effect here: " + std::string(key.reason);
    case Status::refused:
      return "refused: " + std::string(key.reason);
    case Status::replaced:
      return "old name of `" + std::string(key.reason) + "`";
    default:
      return "honoured";
  }
}

std::string row(const Key& key) {
  std::string name = "`" + key.path + "`";
  if (!key.alias.empty()) name += ", `" + std::string(key.alias) + "`";
  std::string meaning(key.meaning == never_read ? "-" : key.meaning);
  if (!key.belongs_to.empty()) {
    meaning += " (" + owners_of(key) + ")";
  }
  const std::string initial = show_default(key);
  const bool section = key.type == Type::section;
  return "| " + name + " | " + cell(meaning) + " | " + cell(allowed_values(key)) + " | " +
         (section || initial == not_set ? "-" : "`" + cell(initial) + "`") + " | " +
         (section ? "-" : cell(status_of(key))) + " |\n";
}

std::string tables() {
  std::string text;
  std::map<std::string_view, std::string> sections;
  std::vector<std::string_view> order;
  for (const Key& key : keys()) {
    std::string_view section = std::string_view(key.path).substr(0, key.path.find('.'));
    const bool alone = key.path == section && key.type != Type::section;
    if (alone) section = "";
    if (!sections.contains(section)) order.push_back(section);
    sections[section] += row(key);
  }
  for (const auto section : order) {
    text +=
        "### " + (section.empty() ? std::string("Top level") : "`" + std::string(section) + "`");
    text += "\n\n| key | meaning | allowed | default | here |\n|---|---|---|---|---|\n";
    text += sections[section] + "\n";
  }
  return text;
}

std::string difference_table() {
  std::string text =
      "## Where values differ from DeepSpeed 0.19\n\n"
      "tests/config/compare_with_deepspeed.py reads real files with both and fails at a difference "
      "that is not\nlisted here. Slips of known keys, and known keys at a wrong place, which "
      "DeepSpeed "
      "passes over, are refused.\n\n| key | DeepSpeed | here | why |\n|---|---|---|---|\n";
  for (const Difference& row : differences()) {
    std::string names;
    for (const auto key : row.keys) names += (names.empty() ? "`" : ", `") + std::string(key) + "`";
    text += "| " + names + " | " + cell(row.deepspeed) + " | " + cell(row.here) + " | " +
            cell(row.why) + " |\n";
  }
  return text + "\n";
}

std::string import_table() {
  std::string text =
      "## Accelerate and FSDP files\n\n"
      "The file may also be an Accelerate YAML or JSON (`distributed_type` FSDP, DEEPSPEED or "
      "plain "
      "data\nparallelism), or the JSON of a Trainer's arguments with `fsdp` and `fsdp_config`. Its "
      "keys become DeepSpeed's,\nand `zero config check` prints what each became. YAML is read "
      "where "
      "the library was built with yaml-cpp.\nNames are shown in Accelerate's form; the Trainer's "
      "lack the `fsdp_` and `parallelism_config_`.\n\n"
      "A DeepSpeed config that the file names (`deepspeed_config_file`, `deepspeed`) or holds is "
      "read with the file as one:\n`mixed_precision` switches its `bf16` or `fp16` on where it "
      "leaves that out or says `\"auto\"`, and so do a Trainer's arguments.\nWhat contradicts it "
      "is "
      "refused, and so are keys that Accelerate would pass over beside it, each with both places; "
      "keys that\nrepeat it are fine. `mixed_precision: no` leaves the choice to the named "
      "config.\n\n"
      "| key | effect |\n|---|---|\n";
  for (const ImportRule& rule : import_rules())
    text += "| `" + std::string(rule.key) + "` | " + cell(rule.effect) + " |\n";
  return text;
}

}  // namespace

std::string config_document() {
  std::string text = introduction;
  text += difference_table();
  text += import_table();
  text += "\n## Keys\n\n" + tables();
  text.pop_back();
  return text;
}

}  // namespace zero::tests
