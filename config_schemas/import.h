// Converts Accelerate's files and the Trainer's arguments to DeepSpeed configs. FSDP's strategies
// are ZeRO stages under other names.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config_schemas/document.h"
#include "config_schemas/load.h"
#include "config_schemas/problems.h"

namespace zero::config_schemas {

// Returns true if the document is an Accelerate or Trainer file.
bool is_foreign(const Node& root);

// Value of a DeepSpeed path, converted from a key of the document.
struct ImportedValue {
  std::string path;
  Node value;
  std::string key;     // of the document; empty: several together
  std::size_t effect;  // of that key, in Imported::effects
  // Set if the value also applies when an accompanying DeepSpeed config omits the path. Accelerate
  // ignores the other values.
  bool fills_in = false;
};

struct Imported {
  std::vector<ImportedValue> values;
  std::string config_file;           // a DeepSpeed config that the document names
  std::optional<Node> config;        // or contains
  bool fp16 = false, bf16 = false;   // the meaning of "auto" in that config
  std::vector<ImportedKey> effects;  // of every key of the document
};
Imported import_config(const Node& root, ProblemList& problems);

// Returns the values as a DeepSpeed config.
Node config_of(const Imported& imported, Position position);
// Adds the values to the DeepSpeed config that the document names or contains, if that has "auto"
// or no value there. Reports contradicting values, as Accelerate and the Trainer do.
void merge(Node& config, const Imported& imported, ProblemList& problems);

// For the documentation.
struct ImportRule {
  std::string_view key;
  std::string effect;
};
std::vector<ImportRule> import_rules();

}  // namespace zero::config_schemas
