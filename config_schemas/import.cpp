#include "config_schemas/import.h"

#include <algorithm>

#include "config_schemas/importer.h"
#include "config_schemas/values.h"

namespace zero::config_schemas {
namespace {

const Node* find_value(const Node& object, std::string_view key) {
  const Member* member = find_member(object, key);
  return member == nullptr ? nullptr : &member->value;
}

const Rule* find_rule(Scope scope, const std::string& key) {
  // The Trainer writes fsdp_config's names without the prefix.
  const std::string full = scope == Scope::fsdp && !key.starts_with("fsdp_") ? "fsdp_" + key : key;
  const auto found = std::ranges::find_if(
      rules(), [&](const Rule& rule) { return rule.scope == scope && rule.key == full; });
  return found == rules().end() ? nullptr : &*found;
}

void read(Importer& import, ProblemList& problems, const Node& section, Scope scope,
          const std::string& path);

// A section inside of the document; another name of a file for deepspeed_config.
bool read_section(Importer& import, ProblemList& problems, const Member& member) {
  const bool fsdp = member.key == "fsdp_config";
  if (!fsdp && member.key != "deepspeed_config") return false;
  const Node& value = member.value;
  if (value.kind == Node::Kind::object) {
    if (fsdp && !value.members.empty()) import.fsdp.seen = true;
    read(import, problems, value, fsdp ? Scope::fsdp : Scope::plugin, member.key);
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
    std::string effect = rule->apply == nullptr ? "" : rule->apply(import, member.value);
    if (effect.empty()) effect = rule->effect;
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
  import.result.root = {Node::Kind::object, root.position, "{", {}};
  const Node* type = find_value(root, "distributed_type");
  const Node* words = find_value(root, "fsdp");
  import.fsdp.seen = (type != nullptr && upper_case(type->text) == "FSDP") ||
                     (words != nullptr && truth_of(*words) != false && words->text != "");
  read(import, problems, root, type != nullptr ? Scope::accelerate : Scope::trainer, "");
  const bool plugin = type != nullptr && upper_case(type->text) == "DEEPSPEED";
  const Node* settings = find_value(root, "deepspeed_config");
  const bool staged = settings != nullptr && find_value(*settings, "zero_stage") != nullptr;
  if (plugin && !staged && import.result.config_file.empty())
    import.result.effects.push_back(
        {"deepspeed_config.zero_stage",
         import.set_number("zero_optimization.stage", root, 2) + ", Accelerate's default"});
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
  Node* node = &result.root;
  std::string_view rest = path;
  for (auto dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
    const std::string name(rest.substr(0, dot));
    const auto found = std::ranges::find(node->members, name, &Member::key);
    if (found == node->members.end())
      node = &node->members
                  .emplace_back(
                      Member{name, value.position, {Node::Kind::object, value.position, "{", {}}})
                  .value;
    else
      node = &found->value;
    rest.remove_prefix(dot + 1);
  }
  std::erase_if(node->members, [&](const Member& member) { return member.key == rest; });
  node->members.push_back({std::string(rest), value.position, value});
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
  problems_.add(at.position, printable(key) + ": " + message);
}

void Importer::finish() {
  if (!fsdp.seen) return;
  Node at;
  at.position = fsdp.at;
  const bool sharded = fsdp.strategy != "NO_SHARD";
  const bool reshard = fsdp.reshard.value_or(fsdp.strategy != "SHARD_GRAD_OP" &&
                                             fsdp.strategy != "HYBRID_SHARD_ZERO2");
  set_number("zero_optimization.stage", at, sharded ? 3 : 0);
  if (sharded && !reshard) set_truth("zero_core.reshard_after_forward", at, false);
  if (fsdp.strategy.starts_with("HYBRID_SHARD"))
    set("zero_core.shard_group_size", {Node::Kind::string, at.position, "node", {}});
  if (sharded && !fsdp.prefetch) set_number("zero_optimization.stage3_prefetch_bucket_size", at, 0);
}

}  // namespace zero::config_schemas
