// Converts Accelerate's files and the Trainer's arguments to DeepSpeed configs. FSDP's strategies
// are ZeRO stages under other names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config_schemas/document.h"
#include "config_schemas/load.h"
#include "config_schemas/problems.h"

namespace zero::config_schemas {

// Whether the document is an Accelerate or Trainer file.
bool is_foreign(const Node& root);

struct Imported {
  Node root;                         // a DeepSpeed config
  std::string config_file;           // where the document only names one: read that instead
  bool fp16 = false, bf16 = false;   // what "auto" stands for there
  std::vector<ImportedKey> effects;  // of every key of the document
};
Imported import_config(const Node& root, ProblemList& problems);

// For the documentation.
struct ImportRule {
  std::string_view key, effect;
};
std::vector<ImportRule> import_rules();

}  // namespace zero::config_schemas
