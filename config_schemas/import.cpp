#include "config_schemas/import.h"

#include <algorithm>
#include <utility>

#include "config_schemas/importer.h"
#include "config_schemas/values.h"

namespace zero::config_schemas {
namespace {

constexpr std::pair<std::string_view, Scope> sections[] = {
    {"fsdp_config", Scope::fsdp},
    {"deepspeed_config", Scope::plugin},
    {"parallelism_config", Scope::parallelism}};

const Node* find_value(const Node& object, std::string_view key) {
  const Member* member = find_member(object, key);
  return member == nullptr ? nullptr : &member->value;
}

// The Trainer writes the names of these sections without the prefix.
std::string full_name(Scope scope, const std::string& key) {
  const std::string prefix = scope == Scope::fsdp          ? "fsdp_"
                             : scope == Scope::parallelism ? "parallelism_config_"
                                                           : "";
  return key.starts_with(prefix) ? key : prefix + key;
}

const Rule* find_rule(Scope scope, const std::string& key) {
  const std::string full = full_name(scope, key);
  const auto found = std::ranges::find_if(
      rules(), [&](const Rule& rule) { return rule.scope == scope && rule.key == full; });
  return found == rules().end() ? nullptr : &*found;
}

const Node* find_named(const Node& section, Scope scope, std::string_view full) {
  for (const Member& member : section.members)
    if (full_name(scope, member.key) == full) return &member.value;
  return nullptr;
}

void read(Importer& import, ProblemList& problems, const Node& section, Scope scope,
          const std::string& path);

// Returns the reason why a section is not read, or an empty text.
std::string unread(const Importer& import, Scope scope) {
  const std::string& type = import.distributed_type;
  if (scope == Scope::fsdp && import.fsdp.off) return "no effect: fsdp is off";
  if (type.empty() || scope == Scope::parallelism) return "";
  if (type == (scope == Scope::fsdp ? "FSDP" : "DEEPSPEED")) return "";
  return "no effect: distributed_type is " + printable(type);
}

// Reads a section inside of the document.
bool read_section(Importer& import, ProblemList& problems, const Member& member) {
  const auto found = std::ranges::find(sections, std::string_view(member.key),
                                       &std::pair<std::string_view, Scope>::first);
  if (found == std::ranges::end(sections)) return false;
  const Scope scope = found->second;
  const Node& value = member.value;
  if (value.kind == Node::Kind::object) {
    const std::string why = unread(import, scope);
    if (!why.empty() && !value.members.empty()) import.result.effects.push_back({member.key, why});
    if (!why.empty()) return true;
    if (scope == Scope::fsdp && !value.members.empty()) import.fsdp.seen = true;
    if (scope == Scope::fsdp && import.fsdp.at.line == 0) import.fsdp.at = value.position;
    read(import, problems, value, scope, member.key);
  } else if (value.kind != Node::Kind::null) {
    problems.add(value.position, member.key + ": must be a section with keys of its own");
  }
  return true;
}

void read(Importer& import, ProblemList& problems, const Node& section, Scope scope,
          const std::string& path) {
  for (const Member& member : section.members) {
    const std::string full = join(path, member.key);
    if (is_comment(member.key)) continue;
    if (path.empty() && read_section(import, problems, member)) continue;
    const Rule* rule = find_rule(scope, member.key);
    if (rule == nullptr) {
      problems.add(member.position, printable(full) + ": is not read from such a file; remove it");
      continue;
    }
    import.key = full;
    import.fills_in = scope != Scope::plugin;
    if (!rule->today.empty() && find_named(section, scope, rule->today) != nullptr) {
      problems.add(member.position, printable(full) + ": is an old name of " +
                                        std::string(rule->today) +
                                        ", which is given too; keep that");
      continue;
    }
    std::string effect = rule->apply == nullptr ? "" : rule->apply(import, member.value);
    if (effect.empty()) effect = rule->effect;
    if (!rule->today.empty()) effect += "; an old name of " + std::string(rule->today);
    import.result.effects.push_back({printable(full), effect});
  }
}

bool contains_any(const Node& root, std::initializer_list<std::string_view> keys) {
  return std::ranges::any_of(keys, [&](auto key) { return find_value(root, key) != nullptr; });
}

}  // namespace

bool is_foreign(const Node& root) {
  return contains_any(root,
                      {"distributed_type", "fsdp", "fsdp_config", "deepspeed_config", "deepspeed"});
}

Imported import_config(const Node& root, ProblemList& problems) {
  Importer import(problems);
  const Node* type = find_value(root, "distributed_type");
  const Node* words = find_value(root, "fsdp");
  if (type != nullptr) import.distributed_type = upper_case(type->text);
  import.fsdp.key = words != nullptr ? "fsdp" : "distributed_type";
  if (words != nullptr || type != nullptr)
    import.fsdp.at = (words != nullptr ? words : type)->position;
  import.fsdp.off =
      words != nullptr && words->members.empty() &&
      (words->text.empty() || words->kind == Node::Kind::array || truth_of(*words) == false);
  import.fsdp.seen = import.distributed_type == "FSDP" || (words != nullptr && !import.fsdp.off);
  read(import, problems, root, type != nullptr ? Scope::accelerate : Scope::trainer, "");
  const Node* settings = find_value(root, "deepspeed_config");
  const bool staged = settings != nullptr && find_value(*settings, "zero_stage") != nullptr;
  if (import.distributed_type == "DEEPSPEED" && !staged && import.result.config_file.empty()) {
    const std::string effect = import.set_number("zero_optimization.stage", root, 2);
    import.result.effects.push_back(
        {"deepspeed_config.zero_stage", effect + ", Accelerate's default"});
  }
  import.finish();
  return std::move(import.result);
}

std::optional<bool> truth_of(const Node& node) {
  if (node.kind == Node::Kind::null) return false;
  const std::string text = lower_case(node.text);
  for (const auto* yes : {"true", "yes", "on", "1"})
    if (text == yes) return true;
  for (const auto* no : {"false", "no", "off", "0"})
    if (text == no) return false;
  return std::nullopt;
}

std::string upper_case(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return result;
}

std::string Importer::set(const std::string& path, const Node& value) {
  std::erase_if(result.values, [&](const ImportedValue& other) { return other.path == path; });
  result.values.push_back({path, value, key, result.effects.size(), fills_in});
  return path + " " + (value.kind == Node::Kind::string ? printable(value.text) : shown(value));
}

std::string Importer::set_text(const std::string& path, const Node& at, const std::string& text) {
  return set(path, {Node::Kind::string, at.position, text, {}});
}

std::string Importer::set_truth(const std::string& path, const Node& at, bool truth) {
  return set(path, {Node::Kind::boolean, at.position, truth ? "true" : "false", {}});
}

std::string Importer::set_number(const std::string& path, const Node& at, std::int64_t number) {
  return set(path, {Node::Kind::number, at.position, std::to_string(number), {}});
}

void Importer::refuse(const Node& at, const std::string& message) {
  refuse(at.position, message);
}

void Importer::refuse(Position at, const std::string& message) {
  problems_.add(at, printable(key) + ": " + message);
}

void Importer::check_mesh() {
  if (mesh.replicas > 1 && mesh.shards == 1)
    refuse(mesh.at, "dp_replicate_size " + std::to_string(mesh.replicas) +
                        " leaves FSDP nothing to shard over; give dp_shard_size too, or "
                        "distributed_type MULTI_GPU for data parallelism");
  const std::int64_t ranks = mesh.replicas * mesh.shards;
  if (ranks > 1 && processes > 0 && ranks != processes)
    refuse(mesh.at, "dp_replicate_size " + std::to_string(mesh.replicas) + " x dp_shard_size " +
                        std::to_string(mesh.shards) + " are " + std::to_string(ranks) +
                        " ranks, but num_processes is " + std::to_string(processes));
}

void Importer::finish() {
  key = "parallelism_config";
  fills_in = true;
  if (fsdp.seen) check_mesh();
  key = fsdp.key;
  if (!fsdp.seen) return;
  if (!result.config_file.empty() || result.config) {
    refuse(fsdp.at, "FSDP and DeepSpeed exclude each other; keep one of them");
    return;
  }
  Node at;
  at.position = fsdp.at;
  const bool sharded = fsdp.strategy != "NO_SHARD";
  const bool reshard = fsdp.reshard.value_or(fsdp.strategy != "SHARD_GRAD_OP" &&
                                             fsdp.strategy != "HYBRID_SHARD_ZERO2");
  set_number("zero_optimization.stage", at, sharded ? 3 : 0);
  if (sharded && !reshard) set_truth("zero_core.reshard_after_forward", at, false);
  if (sharded && mesh.replicas > 1)
    set_number("zero_core.shard_group_size", {Node::Kind::null, mesh.at, "", {}}, mesh.shards);
  else if (fsdp.strategy.starts_with("HYBRID_SHARD"))
    set_text("zero_core.shard_group_size", at, "node");
  if (sharded && !fsdp.prefetch) set_number("zero_optimization.stage3_prefetch_bucket_size", at, 0);
}

}  // namespace zero::config_schemas
