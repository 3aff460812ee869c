// Accelerate's files and the Trainer's arguments, as DeepSpeed configs: FSDP and ZeRO are one plan
// here, written in two languages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config_schemas/document.h"
#include "config_schemas/load.h"
#include "config_schemas/problems.h"

namespace zero::config_schemas {

// Whether a document is one of these.
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
