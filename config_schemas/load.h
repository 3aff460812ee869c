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

// A value of the resolved config.
struct Entry {
  const Key* key = nullptr;
  std::string path;   // in the table's spelling
  std::string value;  // as interpreted
  Source source = Source::fallback;
  std::string place = "";  // of a given value: "ds_config.json:3:14", or "override"
};

// Effect of a key of an Accelerate or Trainer file.
struct ImportedKey {
  std::string key, effect;
};

struct Loaded {
  Config config;
  std::vector<Entry> entries;         // in the order of the table
  std::vector<ImportedKey> imported;  // empty for a DeepSpeed file
};

// A training run needs every value that replaces "auto". A check leaves open, with a notice, the
// values that only the training program has: the number of steps.
enum class Purpose : std::uint8_t { run, check };

// `file` is the name in messages. With the ending .yaml or .yml, the text is YAML; with .json,
// JSON; otherwise a text without an opening bracket may be YAML. Files that the text names are also
// searched in its folder. Throws ConfigError with all problems at once.
Loaded load_text(std::string_view text, const std::string& file, const Text& overrides,
                 const TrainerValues& values, Purpose purpose = Purpose::run);
Loaded load_file(const std::string& file, const Text& overrides, const TrainerValues& values,
                 Purpose purpose = Purpose::run);

Config parse_config(std::string_view text, const std::string& file, const Text& overrides = {},
                    const TrainerValues& values = {});

// Returns the document alone as JSON, without comments; for an Accelerate or Trainer file, the
// DeepSpeed config that it means or names. Throws as above if the document cannot be read.
std::string as_json(std::string_view text, const std::string& file);

// Reads a whole regular file of at most the size that parse_config accepts; never blocks on a FIFO
// or device. Throws ConfigError.
std::string read_config_file(const std::string& file);

}  // namespace zero::config_schemas
