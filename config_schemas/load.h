// load_config() of zero/config.h, also for text that is already in memory, and with the source of
// each value.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config_schemas/keys.h"
#include "zero/config.h"

namespace zero::config_schemas {

enum class Source : std::uint8_t { file, alias, override, automatic, derived, fallback };
const char* name_of(Source source);  // "file", ..., "default"

// One value of the resolved config.
struct Entry {
  const Key* key = nullptr;
  std::string path;   // as the table writes it
  std::string value;  // as it is understood
  Source source = Source::fallback;
  std::string place = "";  // of a value that is given: "ds_config.json:3:14", or "override"
};

// What became of a key of an Accelerate or Trainer file.
struct ImportedKey {
  std::string key, effect;
};

struct Loaded {
  Config config;
  std::vector<Entry> entries;         // in the order of the table
  std::vector<ImportedKey> imported;  // empty for a DeepSpeed file
};

// A run must know all that "auto" stands for. A check leaves open, with a notice, what only the
// training program knows: its number of steps.
enum class Purpose : std::uint8_t { run, check };

// `file` stands in messages. A name that ends in .yaml or .yml says that the text is YAML, one in
// .json that it is JSON; else a text without an opening bracket may be YAML. Files that the text
// names are looked for beside it. Throws ConfigError with all problems at once.
Loaded load_text(std::string_view text, const std::string& file, const Text& overrides,
                 const TrainerValues& values, Purpose purpose = Purpose::run);
Loaded load_file(const std::string& file, const Text& overrides, const TrainerValues& values,
                 Purpose purpose = Purpose::run);

Config parse_config(std::string_view text, const std::string& file, const Text& overrides = {},
                    const TrainerValues& values = {});

// The document alone as JSON, without comments; of an Accelerate or Trainer file the DeepSpeed
// config that it means or names. Throws as above where the document cannot be read.
std::string as_json(std::string_view text, const std::string& file);

// The whole of a regular file of at most the size that parse_config takes; never blocks on a FIFO
// or device. Throws ConfigError.
std::string read_config_file(const std::string& file);

}  // namespace zero::config_schemas
