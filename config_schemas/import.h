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

// Whether the document is an Accelerate or Trainer file.
bool is_foreign(const Node& root);

// A value that a key of the document stands for, by its DeepSpeed path.
struct ImportedValue {
  std::string path;
  Node value;
  std::string key;     // of the document; empty: several together
  std::size_t effect;  // of that key, in Imported::effects
  // Whether it also acts where a DeepSpeed config beside it leaves it out. Accelerate passes over
  // the others.
  bool fills_in = false;
};

struct Imported {
  std::vector<ImportedValue> values;
  std::string config_file;           // a DeepSpeed config that the document names
  std::optional<Node> config;        // or holds
  bool fp16 = false, bf16 = false;   // what "auto" stands for there
  std::vector<ImportedKey> effects;  // of every key of the document
};
Imported import_config(const Node& root, ProblemList& problems);

// The values as a DeepSpeed config.
Node config_of(const Imported& imported, Position position);
// Puts the values into the DeepSpeed config that the document names or holds: where that says
// "auto" or nothing. Reports those that contradict it, as Accelerate and the Trainer do.
void merge(Node& config, const Imported& imported, ProblemList& problems);

// For the documentation.
struct ImportRule {
  std::string_view key;
  std::string effect;
};
std::vector<ImportRule> import_rules();

}  // namespace zero::config_schemas
