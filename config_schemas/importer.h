// Result of an import in progress: import_rules.cpp has a rule for each key, import.cpp applies
// them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config_schemas/import.h"

namespace zero::config_schemas {

class Importer {
 public:
  explicit Importer(ProblemList& problems) : problems_(problems) {}

  // Puts a value at a DeepSpeed path; returns it as an effect to print: "seed 3".
  std::string set(const std::string& path, const Node& value);
  std::string set_text(const std::string& path, const Node& at, const std::string& text);
  std::string set_truth(const std::string& path, const Node& at, bool truth);
  std::string set_number(const std::string& path, const Node& at, std::int64_t number);
  void refuse(const Node& at, const std::string& message);
  void refuse(Position at, const std::string& message);

  // FSDP keys that together determine the stage.
  struct Fsdp {
    bool seen = false;
    bool off = false;             // the Trainer's switch
    std::string strategy;         // upper case, without "HYBRID_SHARD_ZERO2"'s underscore
    std::optional<bool> reshard;  // version 2
    bool prefetch = true;
    Position at;
    std::string key;  // the deciding key
  };
  Fsdp fsdp;
  // The axes of parallelism_config.
  struct Mesh {
    std::int64_t replicas = 1, shards = 1;
    Position at;
  };
  Mesh mesh;
  std::int64_t processes = 0;    // 0: not given
  std::string distributed_type;  // upper case; empty: a Trainer's file
  Imported result;
  std::string key;        // being read, for messages
  bool fills_in = false;  // of the values that it sets

  // Converts the strategy to a stage, after all keys are read.
  void finish();

 private:
  void check_mesh();

  ProblemList& problems_;
};

enum class Scope : std::uint8_t { accelerate, fsdp, parallelism, plugin, trainer };

struct Rule {
  Scope scope;
  std::string_view key;
  std::string_view effect;  // always this text, or the documentation of `apply`
  // Returns the effect to print; empty: the fixed text.
  std::string (*apply)(Importer&, const Node&) = nullptr;
  std::string_view today = {};  // the present name of an old key
};

const std::vector<Rule>& rules();

// Returns the truth value of "true", "yes", 1 and so on; nothing if the node is none of these.
std::optional<bool> truth_of(const Node& node);
std::string upper_case(std::string_view text);

}  // namespace zero::config_schemas
