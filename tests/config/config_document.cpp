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

ZeroCore reads the JSON file that DeepSpeed reads, unchanged. Every key falls into one of these categories; none is
silently ignored:

| | what happens |
|---|---|
| honored | it has the effect that it has in DeepSpeed, or the one in the table |
| no effect here | it is checked, and listed once at start with the reason, unless its value requests the existing behavior |
| refused | the file is refused with the reason if the value enables it; a value that does not (`false`, `"none"`, the default) is fine |
| old name | it is read as the key that replaced it, with a notice; giving both is refused |
| unknown, in a section where DeepSpeed refuses unknown keys | refused, with the nearest known key if one is near |
| unknown elsewhere | a notice, as DeepSpeed ignores it; refused if it looks like a misspelled key, or is a known key at a wrong place that would have an effect at its own |

DeepSpeed refuses unknown keys in `zero_optimization`, `fp16`, `bf16`, `compile`, `comms_logger`,
`timers.throughput`, `tensor_parallel`, the monitors, `optimizer.params` and `scheduler.params`. `zero_core` is such a
section too.

`zero config check FILE` reports whether the file can be used, and which keys have no effect or are refused. It also
builds the engine's plan for the given `--world-size`, `--device` and `--model`, and fails if every such run would fail.
Without `--device`, a problem that affects only GPUs or only CPUs is reported as a notice. `zero config explain FILE`
shows every resolved value and its origin, and with `--world-size` (and `--per-node`) also how the parameters and gradients
of a block travel: over which ranks, in which types. `zero config explain KEY` explains a key. `zero config new` writes a
file to start from, in plain JSON. Editors complete and check keys with `config_schemas/ds_config.schema.json`: name it as
`"$schema"` in the file, which DeepSpeed ignores, or in the editor's settings.

## The file

* Hjson, as DeepSpeed reads it: JSON; comments (`#`, `//`, `/* */`); commas that are missing or precede a
  closing bracket; keys and strings without quotes (such a string continues to the end of its line). Names that
  start with `_` are comments too. Strings of several lines (`'''`) are not read.
* A key given twice is refused, at any depth. At most 1 MiB, 32 levels, 10,000 keys.
* YAML, if the name ends in `.yaml` or `.yml`, or has no JSON ending and the text does not begin with a
  bracket. Plain values have the meaning of YAML 1.1: `no` is false, `500_000_000` a number. One document without
  aliases, and nothing after it.
* Integers may be written `5e8` or `16.0`. Numbers may be strings, as loaders of YAML make one of `1e-5`; in the
  sections where DeepSpeed refuses unknown keys truth values may too. A notice names them. Rates and momenta of
  schedules may be lists of one; a list of rates by group is refused, as groups take shares of one schedule.
* Every number has a range; one outside it is refused. A key that DeepSpeed never reads and that has no effect
  here may have a value of any type.
* All problems are reported in one message, each with line, column, path and what is allowed.
* Command-line overrides go by path (`--set zero_optimization.stage=3`) and pass the same checks.

## "auto"

Hugging Face's Trainer and Accelerate replace `"auto"` before DeepSpeed sees it. Here the training program's
values replace it (`zero::TrainerValues`), or the Trainer's defaults if the program has none.

| key | value |
|---|---|
| `train_micro_batch_size_per_gpu` | the program's; else 1, with a notice, also if a file names no batch at all |
| `gradient_accumulation_steps` | the program's; else the quotient of the batch sizes, or 1; with `zero_core.rank_independent` the number that the ranks need |
| `train_batch_size` | follows from the other two |
| `gradient_clipping` | 1.0 |
| `optimizer.params.lr`, `betas`, `eps`, `weight_decay` | 5e-5, [0.9, 0.999], 1e-8, 0 |
| `scheduler.params.warmup_min_lr`, `warmup_max_lr` | 0, the optimizer's `lr` |
| `scheduler.params.warmup_num_steps` | the program's; else 1, the shortest |
| `scheduler.params.total_num_steps` | the program's number of steps; if it has none, a run is refused, and `zero config` leaves it open |
| `fp16.enabled`, `bf16.enabled` | the program's choice; else false |
| `zero_optimization.reduce_bucket_size` | hidden size squared, if the program gives the hidden size |
| `zero_optimization.stage3_prefetch_bucket_size` | 0.9 times that |
| `zero_optimization.stage3_param_persistence_threshold` | 10 times the hidden size |
| other keys of sections where DeepSpeed refuses unknown ones, `steps_per_print` | the default, as if the key were absent |
| other keys without effect here | nothing |
| anything else | refused |

## Releases of DeepSpeed

Defaults are those of DeepSpeed 0.19. `"zero_core": {"deepspeed_defaults": "0.14"}` takes those of 0.14 for
keys that the file omits: `gradient_clipping` 0 instead of 1.0, and `warmup_max_lr` 0.001 in WarmupLR instead
of the optimizer's rate. Blocks that DeepSpeed has removed by now are refused if they are enabled, and
listed if they are not, although DeepSpeed 0.19 refuses their mere presence.

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
      return "honored";
  }
}

// Whether a row has the reason of the row above.
bool repeats(const Key& key, const Key* before) {
  return before != nullptr && key.status == Status::no_effect && before->status == key.status &&
         before->reason == key.reason;
}

// `before`: the key of the row above; null for the first.
std::string row(const Key& key, const Key* before) {
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
         (section                ? "-"
          : repeats(key, before) ? "as above"
                                 : cell(status_of(key))) +
         " |\n";
}

std::string tables() {
  std::string text;
  std::map<std::string_view, std::string> sections;
  std::map<std::string_view, const Key*> newest;
  std::vector<std::string_view> order;
  for (const Key& key : keys()) {
    std::string_view section = std::string_view(key.path).substr(0, key.path.find('.'));
    const bool alone = key.path == section && key.type != Type::section;
    if (alone) section = "";
    if (!sections.contains(section)) order.push_back(section);
    sections[section] += row(key, std::exchange(newest[section], &key));
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
      "that is not\nlisted here. Misspelled keys, and known keys at a wrong place, which DeepSpeed "
      "ignores, are refused.\n\n"
      "| key | DeepSpeed | here | why |\n|---|---|---|---|\n";
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
      "keys become DeepSpeed's,\nand `zero config check` prints what each became. YAML is read if "
      "the library was built with yaml-cpp.\nNames are shown in Accelerate's form; the Trainer's "
      "lack the `fsdp_` and `parallelism_config_`.\n\n"
      "A DeepSpeed config that the file names (`deepspeed_config_file`, `deepspeed`) or contains "
      "is merged with the file:\n`mixed_precision` enables its `bf16` or `fp16` if it omits them "
      "or has `\"auto\"`, and so do a Trainer's arguments.\nContradicting keys are refused, and so "
      "are keys that Accelerate would ignore next to it, each with both places;\nkeys that repeat "
      "it are fine. `mixed_precision: no` leaves the choice to the named config.\n\n"
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
